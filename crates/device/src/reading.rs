//! A figure that always says where it is from, or why there is none.

use std::fmt::Display;

use serde::Serialize;

/// A figure and where it is from, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Reading<T> {
    /// Was read.
    Known {
        /// The figure.
        value: T,
        /// Who said so.
        source: String,
    },
    /// Could not be read.
    Unavailable {
        /// Why.
        unavailable: String,
    },
}

impl<T> Reading<T> {
    /// A figure from `source`.
    pub fn known(value: T, source: impl Into<String>) -> Reading<T> {
        Reading::Known { value, source: source.into() }
    }

    /// No figure.
    pub fn unavailable(why: impl Display) -> Reading<T> {
        Reading::Unavailable { unavailable: why.to_string() }
    }

    /// The figure, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Reading::Known { value, .. } => Some(value),
            Reading::Unavailable { .. } => None,
        }
    }

    /// Where the figure is from, if there is one.
    pub fn source(&self) -> Option<&str> {
        match self {
            Reading::Known { source, .. } => Some(source),
            Reading::Unavailable { .. } => None,
        }
    }

    /// Why there is no figure, if there is none.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Reading::Known { .. } => None,
            Reading::Unavailable { unavailable } => Some(unavailable),
        }
    }

    /// The same reading in another form.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Known { value, source } => Reading::Known { value: change(value), source },
            Reading::Unavailable { unavailable } => Reading::Unavailable { unavailable },
        }
    }

    /// This one, or the other if this one is unavailable. If both are, both reasons are kept.
    pub fn or(self, other: impl FnOnce() -> Reading<T>) -> Reading<T> {
        match self {
            Reading::Known { .. } => self,
            Reading::Unavailable { unavailable: first } => match other() {
                Reading::Unavailable { unavailable } => Reading::unavailable(format!("{first}; {unavailable}")),
                known => known,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_reading_wins_and_reasons_add_up() {
        let none = |why| Reading::<u32>::unavailable(why);
        assert_eq!(Reading::known(1, "a").or(|| panic!("not asked")), Reading::known(1, "a"));
        assert_eq!(none("x").or(|| Reading::known(2, "b")).source(), Some("b"));
        assert_eq!(none("x").or(|| none("y")).reason(), Some("x; y"));
        assert_eq!(Reading::known(2, "b").map(|n| n * 2).value(), Some(&4));
        assert_eq!(none("x").map(|n| n * 2).value(), None);
    }
}
