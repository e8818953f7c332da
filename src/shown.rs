//! How values are shown to people in messages.

use std::{fmt, time::Duration};

/// Shows a time in the unit that fits it: `25 s`, `1.5 s`, `300 ms`; a limit in force never reads as 0.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

// === impl Time ===

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos() as f64;
        if self.0 < Duration::from_secs(1) {
            write!(f, "{} ms", nanos / 1e6)
        } else {
            write!(f, "{} s", nanos / 1e9)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_unit_that_fits_it() {
        for (nanos, shown) in [
            (25_000_000_000, "25 s"),
            (1_000_000_000, "1 s"),
            (2_300_000_000, "2.3 s"),
            (999_000_000, "999 ms"),
            (300_000_000, "300 ms"),
            (500_000, "0.5 ms"),
            (1, "0.000001 ms"),
        ] {
            assert_eq!(Time(Duration::from_nanos(nanos)).to_string(), shown);
        }
    }
}
