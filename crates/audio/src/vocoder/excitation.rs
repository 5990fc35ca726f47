//! What excites a voice: pulses of its pitch, and noise. Made sample by sample, so that a waveform may be made in pieces: the next
//! piece begins where the last one ended.

use super::noise::Noise;
use crate::mel::MelSettings;

/// Makes pulses of height 1, once a period, of all harmonics below half the sample rate; and noise. Both have a mean magnitude of 1 in
/// the spectrum, and the padding of the frames.
pub(super) struct Excitation {
    hop: f32,
    rate: f32,
    padding: f32,
    noise_scale: f32,
    /// The next sample.
    next: usize,
    /// Where in a period it is, 0 to 1.
    phase: f32,
    random: Noise,
}

impl Excitation {
    /// From the first sample on; the noise depends on the seed alone.
    pub(super) fn new(settings: &MelSettings, noise_scale: f32, seed: u64) -> Excitation {
        Excitation {
            hop: settings.hop_length as f32,
            rate: settings.sample_rate as f32,
            padding: settings.padding_samples() as f32,
            noise_scale,
            next: 0,
            phase: 0.0,
            random: Noise::seeded(seed),
        }
    }

    /// Adds the samples before `end` to pulses and noise. `pitch` says the Hz of a frame (0: none), frames being counted from the first
    /// one of all; that of the frame after the one that a sample lies in is asked for too.
    pub(super) fn extend(
        &mut self,
        end: usize,
        pitch: impl Fn(usize) -> f32,
        pulses: &mut Vec<f32>,
        noise: &mut Vec<f32>,
    ) {
        for n in self.next..end {
            let place = ((n as f32 - self.padding) / self.hop).max(0.0);
            let (frame, part) = (place as usize, place.fract());
            let hz = match (pitch(frame), pitch(frame + 1)) {
                (a, b) if a > 0.0 && b > 0.0 => a + (b - a) * part,
                (a, _) if part < 0.5 => a,
                (_, b) => b,
            };
            pulses.push(self.pulse(hz));
            noise.push(self.noise_scale * self.random.next());
        }
        self.next = self.next.max(end);
    }

    fn pulse(&mut self, hz: f32) -> f32 {
        if hz <= 0.0 {
            self.phase = 0.0;
            return 0.0;
        }
        self.phase = (self.phase + hz / self.rate).fract();
        // The sum of cosines of the harmonics 1 to count (Dirichlet's kernel).
        let (half, count) = (std::f32::consts::PI * self.phase, (0.5 * self.rate / hz).floor());
        let kernel = match half.sin() {
            sine if sine.abs() < 1e-4 => count,
            sine => 0.5 * (((2.0 * count + 1.0) * half).sin() / sine - 1.0),
        };
        kernel * 2.0 * hz / self.rate
    }
}
