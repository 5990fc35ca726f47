//! How long a piece of simulated work takes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tandem_flow::Random;

/// Longer than this is a typing error, not a stage.
const ABSURD: Duration = Duration::from_secs(3600);
/// A normal distribution has no lower end, work has: no draw is shorter than this share of the mean.
const SHORTEST: f64 = 0.1;

/// A mean duration with a spread (standard deviation), written `12.3ms±2.1` or `12.3ms+-2.1ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The mean.
    pub mean: Duration,
    /// The standard deviation.
    pub spread: Duration,
}

impl Cost {
    /// Always the same.
    pub fn fixed(mean: Duration) -> Cost {
        Cost { mean, spread: Duration::ZERO }
    }

    /// The duration of piece `number` of the work called `name`: a normal draw that depends on nothing else, so a
    /// run with other threads, depths or modes does exactly the same work.
    pub fn draw(&self, seed: u64, name: &str, number: u64) -> Duration {
        if self.spread.is_zero() {
            return self.mean;
        }
        let place = Random::named(seed, name).next();
        let (normal, _) = Random::at(&[place, number]).normals();
        let seconds = self.mean.as_secs_f64() + normal * self.spread.as_secs_f64();
        Duration::from_secs_f64(seconds.max(SHORTEST * self.mean.as_secs_f64()))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| 1e3 * duration.as_secs_f64();
        write!(f, "{:.1} ± {:.1} ms", ms(self.mean), ms(self.spread))
    }
}

/// Why a text is not a [`Cost`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostError {
    /// Not a number with a unit.
    Syntax(String),
    /// A number without a unit.
    NoUnit(String),
    /// A unit that is none of ours.
    Unit(String),
    /// Negative.
    Negative(String),
    /// Longer than an hour, infinite or not a number.
    Absurd(String),
}

impl fmt::Display for CostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CostError::Syntax(text) => write!(f, "`{text}` is not a duration, write for example `12.3ms±2.1`"),
            CostError::NoUnit(text) => write!(f, "`{text}` has no unit, write for example `{text}ms`"),
            CostError::Unit(unit) => write!(f, "unknown unit `{unit}`, valid units are ns, us, ms, s"),
            CostError::Negative(text) => write!(f, "`{text}` is negative, a duration is 0 or more"),
            CostError::Absurd(text) => write!(f, "`{text}` is not a sensible duration, at most 3600s"),
        }
    }
}

impl std::error::Error for CostError {}

impl FromStr for Cost {
    type Err = CostError;

    fn from_str(text: &str) -> Result<Cost, CostError> {
        let (mean, spread) = match text.split_once('±').or_else(|| text.split_once("+-")) {
            Some((mean, spread)) => (mean, Some(spread)),
            None => (text, None),
        };
        let (mean, unit) = duration(mean, None)?;
        let spread =
            spread.map_or(Ok(Duration::ZERO), |spread| duration(spread, Some(unit)).map(|(spread, _)| spread))?;
        Ok(Cost { mean, spread })
    }
}

/// A duration and the length of its unit in seconds. Without a unit the default is taken, if there is one.
fn duration(text: &str, default_unit: Option<f64>) -> Result<(Duration, f64), CostError> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    // The `e` of `1e-3` is part of the number.
    let split = match text[split..].strip_prefix(['e', 'E']) {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') => {
            let digits = rest[1..].find(|c: char| c.is_alphabetic()).unwrap_or(rest.len() - 1);
            split + 2 + digits
        }
        _ => split,
    };
    let (number, unit) = text.split_at(split);
    let unit = match (unit.trim(), default_unit) {
        ("", Some(unit)) => unit,
        ("", None) if number.parse::<f64>().is_ok() => return Err(CostError::NoUnit(text.to_owned())),
        ("", None) => return Err(CostError::Syntax(text.to_owned())),
        ("ns", _) => 1e-9,
        ("us" | "µs" | "μs", _) => 1e-6,
        ("ms", _) => 1e-3,
        ("s", _) => 1.0,
        (_, _) if number.is_empty() => return Err(CostError::Syntax(text.to_owned())),
        (unit, _) => return Err(CostError::Unit(unit.to_owned())),
    };
    let number: f64 = number.trim().parse().map_err(|_| CostError::Syntax(text.to_owned()))?;
    let seconds = number * unit;
    if seconds < 0.0 {
        return Err(CostError::Negative(text.to_owned()));
    }
    if seconds.is_nan() || seconds > ABSURD.as_secs_f64() {
        return Err(CostError::Absurd(text.to_owned()));
    }
    Ok((Duration::from_secs_f64(seconds), unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(mean_us: u64, spread_us: u64) -> Cost {
        Cost { mean: Duration::from_micros(mean_us), spread: Duration::from_micros(spread_us) }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, expected) in [
            ("12.3ms±2.1", cost(12_300, 2_100)),
            ("12.3ms+-2.1ms", cost(12_300, 2_100)),
            ("12.3ms ± 500us", cost(12_300, 500)),
            ("1s", cost(1_000_000, 0)),
            ("1e-3s", cost(1_000, 0)),
            ("250µs±50", cost(250, 50)),
            ("0ms", cost(0, 0)),
        ] {
            assert_eq!(text.parse::<Cost>(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn bad_durations_say_what_is_wrong() {
        for (text, expected) in [
            ("", CostError::Syntax(String::new())),
            ("fast", CostError::Syntax("fast".into())),
            ("12", CostError::NoUnit("12".into())),
            ("12parsecs", CostError::Unit("parsecs".into())),
            ("-5ms", CostError::Negative("-5ms".into())),
            ("5ms±-1", CostError::Negative("-1".into())),
            ("2h", CostError::Unit("h".into())),
            ("99999s", CostError::Absurd("99999s".into())),
            ("5ms±", CostError::Syntax(String::new())),
            ("1.2.3ms", CostError::Syntax("1.2.3ms".into())),
        ] {
            assert_eq!(text.parse::<Cost>(), Err(expected), "{text}");
        }
        assert!("NaNms".parse::<Cost>().is_err());
        assert!("infs".parse::<Cost>().is_err());
    }

    #[test]
    fn draws_have_the_mean_and_the_spread_and_depend_only_on_their_number() {
        let cost = cost(12_300, 2_100);
        let draws: Vec<f64> = (0..20_000).map(|n| cost.draw(1, "load", n).as_secs_f64() * 1e3).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let std = (draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64).sqrt();
        assert!((mean - 12.3).abs() < 0.05, "{mean}");
        assert!((std - 2.1).abs() < 0.05, "{std}");
        assert_eq!(cost.draw(1, "load", 7), cost.draw(1, "load", 7));
        assert_ne!(cost.draw(1, "load", 7), cost.draw(1, "train", 7));
        assert_ne!(cost.draw(1, "load", 7), cost.draw(2, "load", 7));
    }
}
