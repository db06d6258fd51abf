"""The five nouns and their arithmetic: loaders, datasets, buffers, handles, arrays."""
