"""MosaicML streaming: MDS shards, its own shuffle, torch DataLoader workers."""
import torch, streaming
from streaming import StreamingDataset
from shards_common import C, Work, collate, packed


class Ds(StreamingDataset):
    def __init__(self, local, batch_size):
        super().__init__(local=local, shuffle=True, batch_size=batch_size, num_canonical_nodes=1)
        self.work = Work()

    def __getitem__(self, n):
        row = super().__getitem__(n)
        return self.work(row["audio"], row["text"])


def main():
    a = C.args()
    n = len(C.items(a))
    streaming.base.util.clean_stale_shared_memory()
    dl = torch.utils.data.DataLoader(Ds(packed(a, "mds"), a.batch), batch_size=a.batch, num_workers=a.workers, collate_fn=collate,
                                     persistent_workers=a.workers > 0)
    C.measure(f"mosaicml-streaming-w{a.workers}", a, lambda _: iter(dl), n, C.audio_seconds(a),
              {"streaming": streaming.__version__, "torch": torch.__version__})


if __name__ == "__main__":
    main()
