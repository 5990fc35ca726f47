"""PyPI's webdataset: tar shards in order, a shuffle buffer, torch DataLoader workers."""
import glob
import torch, webdataset as wds
from shards_common import C, Work, collate, packed


def main():
    a = C.args()
    n = len(C.items(a))
    shards = sorted(glob.glob(packed(a, "tandem") + "/*.tar"))
    work = Work()
    ds = wds.WebDataset(shards, shardshuffle=len(shards), seed=1).shuffle(1000)
    ds = ds.map(lambda sample: work(sample[a.variant], sample["txt"].decode())).batched(a.batch, collation_fn=collate)
    dl = torch.utils.data.DataLoader(ds, batch_size=None, num_workers=a.workers, persistent_workers=a.workers > 0)
    C.measure(f"webdataset-w{a.workers}", a, lambda _: iter(dl), n, C.audio_seconds(a), {"webdataset": wds.__version__, "torch": torch.__version__})


if __name__ == "__main__":
    main()
