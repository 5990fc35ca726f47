//! Times of SRT and VTT.

/// `01:02:03,456`, `02:03.456`: in seconds.
pub(super) fn seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = |part: &str, most: usize| {
        let valid = (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        valid.then(|| part.parse::<u32>().ok()).flatten().map(f64::from)
    };
    let (whole, fraction) = text.split_once([',', '.']).unwrap_or((text, "0"));
    let mut parts = whole.split(':').rev();
    let (seconds, minutes) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let hours = parts.next().map_or(Some(0.0), |hours| digits(hours, 4))?;
    if parts.next().is_some() || seconds >= 60.0 || minutes >= 60.0 {
        return None;
    }
    Some(3600.0 * hours + 60.0 * minutes + seconds + digits(fraction, 6)? / 10f64.powi(fraction.len() as i32))
}

/// `START --> END`, with anything behind it; what is not a time is handed back.
pub(super) fn range(line: &str) -> Result<(f64, f64), String> {
    let (start, rest) = line.split_once("-->").ok_or_else(|| line.trim().to_owned())?;
    let end = rest.split_whitespace().next().unwrap_or("");
    let read = |text: &str| seconds(text).ok_or_else(|| text.trim().to_owned());
    Ok((read(start)?, read(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_or_named() {
        assert_eq!(seconds("01:02:03,456"), Some(3723.456));
        assert_eq!(seconds("02:03.4"), Some(123.4));
        assert_eq!(seconds(" 100:00:00.000 "), Some(360_000.0));
        for wrong in
            ["", "3.5", "00:61:00,000", "00:00:61,000", "-1:00", "1:2:3:4", "aa:00,0", "00:00,", "00:00:00,1e3"]
        {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
        assert_eq!(range("00:01.000 --> 00:02.500 align:start"), Ok((1.0, 2.5)));
        assert_eq!(range("00:01.000 --> soon"), Err("soon".to_owned()));
    }
}
