use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tandem_data::*;
use tandem_train::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let folder = std::path::Path::new(&args[1]);
    let corpus = Arc::new(Corpus::open(folder, CorpusSettings::default(), |_, _| {}, &AtomicBool::new(false)).unwrap());
    let data = Data::new(corpus, None).unwrap();
    let run = RunFolder::new(&args[2]);
    let device = tandem_model::Device::flex();
    let (speech, state) = Speech::open(&run.checkpoints().path(*run.checkpoints().steps().last().unwrap()), &device).unwrap();
    let batches = validation_batches(&data, &state.settings, &state.stats, 2, state.model.reference.then_some(tandem_model::REFERENCE_FRAMES), 64).unwrap();
    for b in &batches {
        let d = speech.model().alignment(&b.inputs.clone().upload(&device));
        for (row, &clip) in b.clips.iter().enumerate() {
            let id = data.validation.name(clip).0;
            let t: Vec<(String, f64)> = std::fs::read_to_string(folder.join("timings").join(format!("{id}.csv"))).unwrap().lines().map(|l| { let mut p = l.rsplitn(3, ','); let e: f64 = p.next().unwrap().parse().unwrap(); p.next(); (p.next().unwrap().to_owned(), e / 22050.0 * 1000.0) }).collect();
            let mut f = 0.0;
            for n in 0..t.len() - 1 {
                f += d[row][n] as f64;
                println!("{}\t{}\t{:.1}", t[n].0, t[n + 1].0, (f - 0.5) * 256.0 / 22.05 - t[n].1);
            }
        }
    }
}
