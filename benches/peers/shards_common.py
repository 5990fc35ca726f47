"""What the loaders of shards share: the work of the other peers, decoding from bytes, and where the packed corpora are."""
import io, os, sys

sys.path.insert(0, os.environ["PEERS"])
import common as C  # noqa: E402
import soundfile as sf, torch  # noqa: E402
from peer_torch import Clips, collate  # noqa: E402,F401


def packed(a, kind):
    """The folder of a packed corpus: DATA-KIND-VARIANT."""
    return f"{a.data.rstrip('/')}-{kind}-{a.variant}"


class Work:
    """Bytes of an audio file and a text to ids and log-mel."""

    def __init__(self):
        self.clips = Clips([], "")

    def __call__(self, audio, text):
        y, rate = sf.read(io.BytesIO(audio), dtype="float32")
        assert rate == C.SR, rate
        return torch.tensor(C.text_ids(text)), self.clips.mel(torch.from_numpy(y))
