//! Images of a run: spectrograms as PNG, curves as SVG.

use std::fmt::Write;

/// Colors from dark to bright, in steps that look equal (a few points of `viridis`).
const COLOURS: [[f32; 3]; 6] = [
    [68.0, 1.0, 84.0],
    [65.0, 68.0, 135.0],
    [42.0, 120.0, 142.0],
    [34.0, 168.0, 132.0],
    [122.0, 209.0, 81.0],
    [253.0, 231.0, 37.0],
];
const MARK: [u8; 3] = [255, 255, 255];

/// A log-mel spectrogram `[bands][frames]`, low bands at the bottom. `marks` are frames at which a white line is drawn.
pub fn spectrogram_png(mel: &[f32], frames: usize, marks: &[usize], pixels_per_frame: usize) -> Vec<u8> {
    let bands = mel.len() / frames.max(1);
    let (scale_x, scale_y) = (pixels_per_frame.max(1), 4);
    let (width, height) = (frames * scale_x, bands * scale_y);
    let (low, high) = range(mel);
    let mut pixels = vec![0u8; width * height * 3];
    for y in 0..height {
        let band = bands - 1 - y / scale_y;
        for x in 0..width {
            let frame = x / scale_x;
            let marked = x % scale_x == 0 && marks.contains(&frame);
            let color = if marked { MARK } else { color((mel[band * frames + frame] - low) / (high - low)) };
            pixels[(y * width + x) * 3..(y * width + x) * 3 + 3].copy_from_slice(&color);
        }
    }
    png(&pixels, width, height)
}

/// Which token each frame belongs to: time to the right, tokens upwards; `durations` are frames of each token.
pub fn alignment_png(durations: &[u32], pixels_per_frame: usize) -> Vec<u8> {
    let frames: usize = durations.iter().sum::<u32>() as usize;
    let (scale_x, scale_y) = (pixels_per_frame.max(1), 8);
    let (width, height) = (frames.max(1) * scale_x, durations.len().max(1) * scale_y);
    let mut pixels: Vec<u8> = COLOURS[0].map(|c| c as u8).repeat(width * height);
    let mut start = 0;
    for (token, &duration) in durations.iter().enumerate() {
        for y in (durations.len() - 1 - token) * scale_y..(durations.len() - token) * scale_y {
            for x in start * scale_x..(start + duration as usize) * scale_x {
                pixels[(y * width + x) * 3..(y * width + x) * 3 + 3].copy_from_slice(&color(0.95));
            }
        }
        start += duration as usize;
    }
    png(&pixels, width, height)
}

/// The darkest and brightest values that matter: silence and a few peaks do not decide the image.
fn range(values: &[f32]) -> (f32, f32) {
    let mut sorted: Vec<f32> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f32::total_cmp);
    let at = |share: f64| sorted.get((share * sorted.len().saturating_sub(1) as f64) as usize).copied().unwrap_or(0.0);
    let (low, high) = (at(0.02), at(0.995));
    if high > low { (low, high) } else { (low - 1.0, low + 1.0) }
}

fn color(value: f32) -> [u8; 3] {
    let value = if value.is_finite() { value.clamp(0.0, 1.0) } else { 0.0 } * (COLOURS.len() - 1) as f32;
    let at = (value as usize).min(COLOURS.len() - 2);
    let mix = value - at as f32;
    std::array::from_fn(|n| (COLOURS[at][n] + (COLOURS[at + 1][n] - COLOURS[at][n]) * mix) as u8)
}

fn png(pixels: &[u8], width: usize, height: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels));
    written.expect("writing to memory, with as many pixels as announced");
    bytes
}

/// A named curve: points of step and value.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

const INKS: [&str; 6] = ["#2a6f97", "#d1495b", "#66a182", "#edae49", "#6a4c93", "#555"];

/// Curves over steps, on a logarithmic scale, with a legend.
pub fn curves_svg(title: &str, curves: &[Curve]) -> String {
    const WIDTH: f64 = 760.0;
    const HEIGHT: f64 = 340.0;
    const LEFT: f64 = 56.0;
    const BOTTOM: f64 = 40.0;
    const TOP: f64 = 36.0;
    const RIGHT: f64 = 150.0;
    let points =
        || curves.iter().flat_map(|curve| &curve.points).filter(|(x, y)| x.is_finite() && y.is_finite() && *y > 0.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"{LEFT}\" y=\"20\" \
         font-weight=\"bold\">{}</text>\n",
        escape(title)
    );
    let last = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let low = points().map(|(_, y)| y.log10()).fold(f64::INFINITY, f64::min);
    let high = points().map(|(_, y)| y.log10()).fold(f64::NEG_INFINITY, f64::max);
    if !low.is_finite() {
        return svg + "</svg>\n";
    }
    let (low, high) = (low - 0.05, high + 0.05);
    let x_of = |x: f64| LEFT + (WIDTH - LEFT - RIGHT) * x / last;
    let y_of = |y: f64| TOP + (HEIGHT - TOP - BOTTOM) * (high - y.log10()) / (high - low);
    for exponent in (low.floor() as i32)..=(high.ceil() as i32) {
        for digit in [1.0, 2.0, 5.0] {
            let value = digit * 10f64.powi(exponent);
            if (low..=high).contains(&value.log10()) {
                let y = y_of(value);
                let _ = write!(
                    svg,
                    "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\n<text x=\"{:.1}\" \
                     y=\"{:.1}\" text-anchor=\"end\">{value}</text>\n",
                    WIDTH - RIGHT,
                    LEFT - 6.0,
                    y + 4.0
                );
            }
        }
    }
    for tick in 0..=4 {
        let x = last * f64::from(tick) / 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x:.0}</text>",
            x_of(x),
            HEIGHT - BOTTOM + 18.0
        );
    }
    for (number, curve) in curves.iter().enumerate() {
        let ink = INKS[number % INKS.len()];
        let path: Vec<String> = (curve.points.iter())
            .filter(|(x, y)| x.is_finite() && y.is_finite() && *y > 0.0)
            .map(|&(x, y)| format!("{:.1},{:.1}", x_of(x), y_of(y)))
            .collect();
        let y = TOP + 16.0 * number as f64 + 8.0;
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{ink}\" stroke-width=\"1.5\" points=\"{}\"/>\n<line x1=\"{:.1}\" \
             y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{ink}\" stroke-width=\"3\"/>\n<text x=\"{:.1}\" \
             y=\"{:.1}\">{}</text>\n",
            path.join(" "),
            WIDTH - RIGHT + 12.0,
            y,
            WIDTH - RIGHT + 32.0,
            y,
            WIDTH - RIGHT + 38.0,
            y + 4.0,
            escape(&curve.name)
        );
    }
    svg + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spectrogram_has_loud_low_bands_at_the_bottom_and_marks() {
        // Two bands, three frames: the low band is loud.
        let bytes = spectrogram_png(&[5.0, 5.0, 5.0, 0.0, 0.0, 0.0], 3, &[1], 2);
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut pixels).expect("a frame");
        assert_eq!((info.width, info.height), (6, 8));
        let at = |x: usize, y: usize| &pixels[(y * 6 + x) * 3..(y * 6 + x) * 3 + 3];
        assert_eq!(at(0, 7), [253, 231, 37], "loud at the bottom");
        assert_eq!(at(0, 0), [68, 1, 84], "quiet at the top");
        assert_eq!(at(2, 3), MARK);
    }

    #[test]
    fn curves_are_drawn_and_nonsense_is_skipped() {
        let curve = Curve { name: "a < b".to_owned(), points: vec![(1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0)] };
        let svg = curves_svg("loss", &[curve]);
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN"));
        assert_eq!(
            svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).map(|p| p.split(' ').count()),
            Some(2)
        );
        assert!(curves_svg("empty", &[]).ends_with("</svg>\n"));
    }
}
