"""The training set of voxel_colab, with meshes of 500 vertices."""

from random import random

import numpy as np
from common import begin, end, options, passes
from data.mesh_dataset import VoxelMeshDataset
from torch.utils.data import DataLoader


def main():
    args = options()
    begin(args)
    dataset = VoxelMeshDataset("nowhere")
    dataset.samples = [
        {
            "name": f"mesh_{i:04d}.off",
            "voxels": np.ones((32, 32, 32), dtype=np.float32),
            "vertices": [(random(), random(), random()) for _ in range(500)],
            "faces": [(j, j + 1, j + 2) for j in range(500)],
        }
        for i in range(16 if args.empty else 2000)
    ]
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=args.num_workers, persistent_workers=args.num_workers > 0)
    for _ in passes(loader, 6):  # until each worker has read nearly all
        pass
    end(5)  # what workers have copied is seen by readings with proportional shares alone


if __name__ == "__main__":
    main()
