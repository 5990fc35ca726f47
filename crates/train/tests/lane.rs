//! Features on the data lane's device are those of the CPU.

mod common;

use std::sync::Arc;

use tandem_audio::MelSettings;
use tandem_audio::MelStats;
use tandem_data::{CacheMode, Corpus, CorpusSettings, DemoCorpus, LoadSettings, Loader, PlanSettings};
use tandem_model::kernels::Stft;
use tandem_model::{Device, Size, VocoderConfig};
use tandem_train::task::{Regression, SpeechTask, Vocoder};
use tandem_train::{DataLane, prepare};

fn loader(corpus: &Arc<Corpus>, as_signal: bool, mode: CacheMode) -> Arc<Loader> {
    let plan = PlanSettings { batch_size: 3, seed: 1, ..PlanSettings::default() };
    let settings = LoadSettings { plan, reference_frames: Some(40), as_signal, ..LoadSettings::default() };
    let cache = corpus.cache(mode, 1 << 30);
    Loader::new(corpus.clone(), (0..corpus.len() as u32).collect(), settings, cache).expect("valid")
}

/// How far the device is from the CPU, by how far a value is below the loudest of its frame (in dB, in tens).
fn differences(device: &Device, batches: usize) -> Vec<Vec<f64>> {
    let dir = tempfile::tempdir().expect("a folder");
    DemoCorpus { clips: 12, speakers: 2, seed: 3 }.write(dir.path()).expect("writes");
    let corpus = Corpus::open(dir.path(), CorpusSettings::default()).expect("opens");
    let corpus = Arc::new(corpus);
    let (mels, signals) = (loader(&corpus, false, CacheMode::Off), loader(&corpus, true, CacheMode::Off));
    let n_mels = MelSettings::default().n_mels;
    // As they are: what normalization does to them is done to both.
    let stats = MelStats { mean: vec![0.0; n_mels], std: vec![1.0; n_mels] };
    let lane = DataLane::new(&corpus.settings().mel, &stats, device).expect("a power of two");
    // Pieces of one row and of several.
    let small = DataLane::new(&corpus.settings().mel, &stats, device).expect("a power of two").piece_bytes(1);
    let mut by_level = vec![Vec::new(); 16];
    for (number, planned) in mels.plan(0).iter().take(batches).enumerate() {
        let wanted = prepare(mels.load(planned), &stats, 1, 2, true);
        let mut signal = prepare(signals.load(planned), &stats, 1, 2, true);
        let lane = if number == 1 { &small } else { &lane };
        let made = lane.features(&mut signal).expect("the device works").expect("there is a signal");
        let reference = wanted.inputs.reference.as_ref().expect("asked for");
        assert_eq!(made.mel.dims(), [wanted.inputs.rows, wanted.inputs.frames, n_mels]);
        let made_reference = made.reference.expect("asked for");
        for (made, wanted) in [(made.mel, &wanted.inputs.mel), (made_reference, &reference.mel)] {
            let made = made.into_data().try_into_vec::<f32>().expect("single precision");
            assert_eq!(made.len(), wanted.len());
            for (made, wanted) in made.chunks(n_mels).zip(wanted.chunks(n_mels)) {
                let loudest = wanted.iter().copied().max_by(f32::total_cmp).expect("bands");
                for (a, b) in made.iter().zip(wanted) {
                    let below = 20.0 / std::f32::consts::LN_10 * (loudest - b);
                    assert!(below.is_finite(), "{b} below {loudest}");
                    by_level[(below / 10.0) as usize].push(f64::from((a - b).abs()));
                }
            }
        }
        // Nothing else depends on where features are computed.
        assert_eq!(signal.inputs.noise, wanted.inputs.noise);
        assert_eq!(signal.inputs.ids, wanted.inputs.ids);
        assert_eq!(signal.clips, wanted.clips);
    }
    by_level
}

#[test]
fn features_of_the_lane_are_those_of_the_cpu() {
    let devices = std::iter::once(("CPU".to_owned(), Device::flex())).chain(common::software_gpus());
    for (name, device) in devices {
        let by_level = differences(&device, 3);
        let most = |levels: &[Vec<f64>]| levels.iter().flatten().copied().max_by(f64::total_cmp).expect("values");
        // Single precision: what is more than 60 dB below the loudest band of its frame, and cannot be heard beside it,
        // differs by more. The CPU computes such frames in double precision.
        assert!(most(&by_level[..6]) < 1e-4, "{name}: {:e}", most(&by_level[..6]));
        assert!(most(&by_level) < 5e-3, "{name}: {:e}", most(&by_level));
        assert!(by_level[..6].iter().map(Vec::len).sum::<usize>() > 10_000, "something was compared");
    }
}

/// What a vocoder learns from, made on the lane and on the host: how far features and spectra are apart, features as they are, spectra as a
/// share of the loudest bin of their frame.
fn segment_differences(device: &Device, piece_bytes: usize) -> [f32; 3] {
    let dir = tempfile::tempdir().expect("a folder");
    DemoCorpus { clips: 6, speakers: 1, seed: 3 }.write(dir.path()).expect("writes");
    let corpus = Arc::new(Corpus::open(dir.path(), CorpusSettings::default()).expect("opens"));
    let mel = corpus.settings().mel.clone();
    let plan = PlanSettings { batch_size: 3, seed: 1, ..PlanSettings::default() };
    let settings = LoadSettings { plan, as_signal: true, pitch: true, ..LoadSettings::default() };
    let cache = corpus.cache(CacheMode::Off, 0);
    let loader = Loader::new(corpus.clone(), (0..corpus.len() as u32).collect(), settings, cache).expect("valid");
    let stft = Stft { n_fft: mel.n_fft, hop: mel.hop_length, win_length: mel.win_length };
    let task = Vocoder::<Regression>::of(VocoderConfig::new(Size::Smoke, mel.n_mels, stft), &mel).expect("valid");
    let stats = MelStats { mean: vec![-5.0; mel.n_mels], std: vec![2.0; mel.n_mels] };
    let lane = task.equip(DataLane::new(&mel, &stats, device).expect("a power of two")).piece_bytes(piece_bytes);
    let mut off = [0.0f32; 3];
    for planned in &loader.plan(0) {
        let made = |lane: Option<&DataLane>| {
            let prepared = task.prepare(loader.load(planned), 0, &stats, 1, lane).expect("prepared");
            let bytes = task.prepared_bytes(&prepared);
            let ready = task.upload(prepared, &Device::flex());
            assert_eq!(bytes as u64, task.input_bytes(&ready.inputs), "what is leased is what it takes");
            ready
        };
        let (host, lane) = (made(None), made(Some(&lane)));
        assert_eq!((host.cursor, &host.clips, host.seconds), (lane.cursor, &lane.clips, lane.seconds));
        assert_eq!(host.inputs.lengths, lane.inputs.lengths);
        host.inputs.waveform.into_data().assert_eq(&lane.inputs.waveform.into_data(), true);
        let pairs = [
            (host.inputs.features, lane.inputs.features),
            (host.inputs.harmonic, lane.inputs.harmonic),
            (host.inputs.noise, lane.inputs.noise),
        ];
        for (n, (host, lane)) in pairs.into_iter().enumerate() {
            assert_eq!(host.dims(), lane.dims());
            let width = host.dims()[2];
            let values = [host, lane].map(|tensor| tensor.into_data().try_into_vec::<f32>().expect("single precision"));
            assert!(values[0].iter().any(|value| *value != 0.0), "there is something to compare");
            for (host, lane) in values[0].chunks(width).zip(values[1].chunks(width)) {
                let loudest = if n == 0 { 1.0 } else { host.iter().fold(1e-3f32, |most, x| most.max(x.abs())) };
                for (a, b) in host.iter().zip(lane) {
                    assert!(a.is_finite() && b.is_finite());
                    off[n] = off[n].max((a - b).abs() / loudest);
                }
            }
        }
    }
    off
}

/// SPEC P5 for a vocoder.
#[test]
fn segments_of_the_lane_are_those_of_the_host() {
    let devices = std::iter::once(("CPU".to_owned(), Device::flex())).chain(common::software_gpus());
    for (name, device) in devices {
        // All rows at once, and one at a time.
        for piece_bytes in [usize::MAX, 1] {
            let [features, harmonic, noise] = segment_differences(&device, piece_bytes);
            println!("{name}: {features:e} {harmonic:e} {noise:e}");
            // Bands that are nearly empty beside loud ones differ by more, as those of the acoustic model do.
            assert!(features < 5e-3, "{name}: {features:e}");
            assert!(harmonic < 1e-4 && noise < 1e-4, "{name}: {harmonic:e} {noise:e}");
        }
    }
}
