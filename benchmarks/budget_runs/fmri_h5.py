"""The loader of fmri_h5 over its lazy data set, which can be sent to a worker, on trials of the real size."""

from common import begin, end, options, passes
from dataloader import NSDDatasetLazy
from torch.utils.data import DataLoader


def main():
    args = options()
    begin(args)
    top = "empty" if args.empty else "data"
    dataset = NSDDatasetLazy(f"{top}/betas", f"{top}/nsd_stimuli.hdf5", f"{top}/train_idx.npy")
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=args.num_workers, persistent_workers=args.num_workers > 0)
    for _ in passes(loader, 1):
        pass
    end()


if __name__ == "__main__":
    main()
