use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tandem_data::*;
use tandem_train::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let folder = std::path::Path::new(&args[1]);
    let steps: u64 = args[2].parse().unwrap();
    let batch: usize = args[3].parse().unwrap();
    if !folder.join("metadata.csv").exists() {
        println!("{:?}", DemoCorpus { clips: 240, speakers: 3, seed: 1 }.write(folder).unwrap());
    }
    let corpus = Arc::new(Corpus::open(folder, CorpusSettings::default(), |_, _| {}, &AtomicBool::new(false)).unwrap());
    let data = Data::new(corpus, None).unwrap();
    let run = RunFolder::new(&args[4]);
    let settings = TrainSettings {
        size: std::env::var("SIZE").unwrap_or("smoke".into()).parse().unwrap(),
        batch_size: batch, max_steps: Some(steps), epochs: 100000, checkpoint_every: 500, validate_every: Some(200), log_every: 50, ..TrainSettings::default() };
    let device = tandem_model::Device::flex();
    let mut t = Trainer::new(data.clone(), settings.clone(), run.clone(), &device, None).unwrap();
    let context = tandem_flow::Context::default();
    let start = std::time::Instant::now();
    let report = t.run(&context, &mut |e| match e {
        Event::Progress(p) => println!("{:6.1}s step {} loss {:.3} {:.3?} norm {:.2} {:.2} steps/s {:.1} audio/s starved {:.3} mem {}", start.elapsed().as_secs_f64(), p.step, p.loss, p.terms, p.norm, p.steps_per_s, p.audio_per_s, p.starved, p.memory_bytes.unwrap()/1000000),
        e => println!("{e:?}"),
    }).unwrap();
    println!("align share {:.4} peak {:?}", report.alignment_share, report.peak_bytes);
    let steps = run.checkpoints().steps();
    let (speech, state) = Speech::open(&run.checkpoints().path(*steps.last().unwrap()), &device).unwrap();
    let reference = state.model.reference.then_some(tandem_model::REFERENCE_FRAMES);
    let batches = validation_batches(&data, &settings, &state.stats, 2, reference, 64).unwrap();
    let e = evaluate(&speech, &state, &data.validation, &batches, &device, &mut |_| {});
    println!("{}", serde_json::to_string_pretty(&e).unwrap());
}
