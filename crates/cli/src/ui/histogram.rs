//! Histograms as an SVG image, without a drawing library: bars, a baseline and a few numbers.

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 200.0;
const MARGIN: f64 = 40.0;
const BARS: usize = 40;

/// One histogram below the other, each with its title.
pub(crate) fn page(plots: &[(String, &Vec<f32>)]) -> String {
    let height = plots.len() as f64 * (HEIGHT + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (number, (title, values)) in plots.iter().enumerate() {
        let top = number as f64 * (HEIGHT + 2.0 * MARGIN) + MARGIN;
        svg += &plot(title, values, top);
    }
    svg + "</svg>\n"
}

fn plot(title: &str, values: &[f32], top: f64) -> String {
    let escaped = title.replace('&', "&amp;").replace('<', "&lt;");
    let mut svg = format!("<text x=\"{MARGIN}\" y=\"{}\" font-weight=\"bold\">{escaped}</text>\n", top - 12.0);
    let finite: Vec<f64> = values.iter().map(|&value| f64::from(value)).filter(|value| value.is_finite()).collect();
    let Some(high) = finite.iter().copied().reduce(f64::max).filter(|&high| high > 0.0) else {
        return svg;
    };
    let mut counts = [0usize; BARS];
    for value in &finite {
        counts[((value / high * BARS as f64) as usize).min(BARS - 1)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let (base, step) = (top + HEIGHT, (WIDTH - 2.0 * MARGIN) / BARS as f64);
    for (bar, &count) in counts.iter().enumerate() {
        let height = HEIGHT * count as f64 / most as f64;
        let (from, to) = (high * bar as f64 / BARS as f64, high * (bar + 1) as f64 / BARS as f64);
        svg += &format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"#2a6f97\"><title>{from:.2} .. \
             {to:.2}: {count}</title></rect>\n",
            MARGIN + bar as f64 * step,
            base - height,
            step - 1.0
        );
    }
    svg += &format!("<line x1=\"{MARGIN}\" y1=\"{base}\" x2=\"{}\" y2=\"{base}\" stroke=\"#333\"/>\n", WIDTH - MARGIN);
    for tick in 0..=4 {
        let x = MARGIN + (WIDTH - 2.0 * MARGIN) * f64::from(tick) / 4.0;
        let value = high * f64::from(tick) / 4.0;
        svg += &format!("<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value:.1}</text>\n", base + 16.0);
    }
    svg + &format!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{most}</text>\n", MARGIN - 4.0, top + 10.0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_value_is_in_some_bar() {
        let values = vec![0.0, 0.5, 1.0, 2.0, 2.0, f32::NAN];
        let svg = super::page(&[("a < b".into(), &values)]);
        let counted: usize =
            svg.split("</title>").filter_map(|part| part.rsplit(": ").next()?.parse::<usize>().ok()).sum();
        assert_eq!(counted, 5);
        assert!(svg.contains("a &lt; b"));
        assert!(super::page(&[("empty".into(), &vec![])]).contains("empty"));
    }
}
