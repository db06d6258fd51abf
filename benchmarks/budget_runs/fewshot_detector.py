"""The episodes of fewshot_detector, whose workers come to keep every frame of every video."""

from common import begin, end, options, passes
from src.datasets.refdet_dataset import RefDetDataset
from torch.utils.data import DataLoader


def main():
    args = options()
    begin(args)
    dataset = RefDetDataset("empty" if args.empty else "data", "train", 21 * max(1, args.num_workers))  # until each worker has met nearly all
    loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=args.num_workers, persistent_workers=args.num_workers > 0)
    for _ in passes(loader, 1):
        pass
    end()


if __name__ == "__main__":
    main()
