"""lhotse Shar: tar shards split among torch DataLoader workers, a sampler with a shuffle buffer in each."""
import torch, lhotse
from lhotse import CutSet
from lhotse.dataset import DynamicCutSampler, IterableDatasetWrapper, make_worker_init_fn
from shards_common import C, Clips, collate, packed


class Ds(torch.utils.data.Dataset):
    def __init__(self):
        self.clips = Clips([], "")

    def __getitem__(self, cuts):
        return collate([(torch.tensor(C.text_ids(cut.custom["text"])), self.clips.mel(torch.from_numpy(cut.load_audio()[0]))) for cut in cuts])


def main():
    a = C.args()
    n = len(C.items(a))
    cuts = CutSet.from_shar(in_dir=packed(a, "shar"), split_for_dataloading=a.workers > 0, shuffle_shards=True, seed=0)
    sampler = DynamicCutSampler(cuts, max_cuts=a.batch, shuffle=True, shuffle_buffer_size=1000)
    ds = IterableDatasetWrapper(dataset=Ds(), sampler=sampler, auto_increment_epoch=True)
    dl = torch.utils.data.DataLoader(ds, batch_size=None, num_workers=a.workers, persistent_workers=a.workers > 0,
                                     worker_init_fn=make_worker_init_fn(rank=0, world_size=1))
    C.measure(f"lhotse-shar-w{a.workers}", a, lambda _: iter(dl), n, C.audio_seconds(a), {"lhotse": lhotse.__version__, "torch": torch.__version__})


if __name__ == "__main__":
    main()
