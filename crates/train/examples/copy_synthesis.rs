//! Recordings through a vocoder: their own mel and pitch, made into waveforms again. What is lost is what the vocoder loses.
//!
//!     cargo run --release -p tandem-train --example copy_synthesis -- CORPUS OUT [VOCODER-RUN]
//!
//! CORPUS and OUT are in the LJSpeech layout. Without a run it is Griffin-Lim. Says how many seconds of work a second of speech takes.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tandem_audio::{
    Decoder, LogMel, MelSettings, PitchTracker, Resampler, Vocoder, open_audio, open_vocoder, write_wav,
};
use tandem_model::Device;
use tandem_train::checkpoint;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    let [from, to, run @ ..] = &paths[..] else { return Err("CORPUS OUT [VOCODER-RUN]".into()) };
    let mel = match run.first() {
        Some(run) => checkpoint::read_state(&checkpoint::find(run)?)?.mel,
        None => MelSettings::default(),
    };
    let vocoder: Box<dyn Vocoder> = match run.first() {
        Some(run) => Box::new(checkpoint::open_trained_vocoder(run, &mel, &Device::flex())?),
        None => open_vocoder(&mel)?,
    };
    std::fs::create_dir_all(to.join("wavs"))?;
    let rows = std::fs::read_to_string(from.join("metadata.csv"))?;
    std::fs::write(to.join("metadata.csv"), &rows)?;
    let mut log_mel = LogMel::new(&mel)?;
    let mut tracker = PitchTracker::new(mel.sample_rate, mel.hop_length);
    let (mut work, mut speech) = (0.0, 0.0);
    for id in rows.lines().filter_map(|row| row.split('|').next()) {
        let name = format!("wavs/{id}.wav");
        let samples = read(&from.join(&name), mel.sample_rate)?;
        let frames = mel.frames(samples.len());
        let bands = log_mel.compute(&samples);
        let pitch = tracker.track(&samples, frames);
        let started = Instant::now();
        let mut again = vocoder.resynthesize(&bands, frames, Some(&pitch));
        work += started.elapsed().as_secs_f64();
        speech += again.len() as f64 / f64::from(mel.sample_rate);
        let peak = again.iter().fold(0.0f32, |peak, sample| peak.max(sample.abs()));
        if peak > 0.99 {
            again.iter_mut().for_each(|sample| *sample *= 0.99 / peak);
        }
        let mut file = std::fs::File::create(to.join(&name))?;
        write_wav(&again, mel.sample_rate, &mut file)?;
    }
    println!("{speech:.1} s of speech in {work:.1} s: {:.4} of real time", work / speech);
    Ok(())
}

fn read(path: &Path, rate: u32) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let mut samples = Vec::new();
    let shape = Decoder::new().decode(&mut open_audio(path)?, &mut samples)?;
    if shape.rate != rate {
        Resampler::new(shape.rate, rate)?.resample(&mut samples, 0);
    }
    Ok(samples)
}
