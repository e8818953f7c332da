//! Formats values for messages.

use std::{fmt, time::Duration};

/// Shows a duration in seconds or milliseconds, unrounded: `25 s`, `1.5 s`, `300 ms`. Only a zero duration is shown
/// as 0.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

/// Shows how long to wait: `850 ms`, `1.3 s`, `42 s`. Rounds up, because a client that comes back too early is refused
/// again.
#[derive(Clone, Copy, Debug)]
pub struct Wait(pub Duration);

/// Shows a duration in one or two units: `12 s`, `3 min`, `2 h 5 min`, `3 d`.
#[derive(Clone, Copy, Debug)]
pub struct RoughDuration(pub Duration);

/// Shows a measured duration with two or three digits: `8.4 µs`, `212 µs`, `1.1 ms`, `35 ms`, `2.5 s`.
#[derive(Clone, Copy, Debug)]
pub struct Latency(pub Duration);

/// Returns a duration in seconds, for a field of the log. Leaves out the digits below a microsecond.
pub fn seconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e6
}

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

// === impl Wait ===

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.0.as_secs() {
            0 => 1,
            1..10 => 100,
            _ => 1000,
        };
        let millis = self.0.as_nanos().div_ceil(1_000_000).next_multiple_of(step);
        Time(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))).fmt(f)
    }
}

// === impl RoughDuration ===

impl fmt::Display for RoughDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
        match (days, hours, minutes) {
            (0, 0, 0) => write!(f, "{seconds} s"),
            (0, 0, 1..10) if !seconds.is_multiple_of(60) => write!(f, "{minutes} min {} s", seconds % 60),
            (0, 0, _) => write!(f, "{minutes} min"),
            (0, ..) if !minutes.is_multiple_of(60) => write!(f, "{hours} h {} min", minutes % 60),
            (0, ..) => write!(f, "{hours} h"),
            _ => write!(f, "{days} d"),
        }
    }
}

// === impl Latency ===

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_nanos() as f64 / 1e3;
        // Values that would round up to 1000 of a unit have the next unit.
        let (value, unit) = match micros {
            ..999.5 => (micros, "µs"),
            ..999_500.0 => (micros / 1e3, "ms"),
            _ => (micros / 1e6, "s"),
        };
        if value < 9.95 { write!(f, "{value:.1} {unit}") } else { write!(f, "{value:.0} {unit}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_one_unit_or_two() {
        for (seconds, shown) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (601, "10 min"),
            (3600, "1 h"),
            (7500, "2 h 5 min"),
            (300_000, "3 d"),
        ] {
            assert_eq!(RoughDuration(Duration::from_secs(seconds)).to_string(), shown);
        }
    }

    #[test]
    fn a_wait_is_rounded_up() {
        for (nanos, shown) in [
            (849_777_091, "850 ms"),
            (500_000_000, "500 ms"),
            (1, "1 ms"),
            (999_000_001, "1 s"),
            (1_200_000_001, "1.3 s"),
            (9_950_000_000, "10 s"),
            (41_000_000_001, "42 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(Wait(Duration::from_nanos(nanos)).to_string(), shown);
        }
    }

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

    #[test]
    fn a_latency_has_two_or_three_digits() {
        for (nanos, shown) in [
            (0, "0.0 µs"),
            (840, "0.8 µs"),
            (9_940, "9.9 µs"),
            (9_960, "10 µs"),
            (212_400, "212 µs"),
            (999_600, "1.0 ms"),
            (1_130_000, "1.1 ms"),
            (35_000_000, "35 ms"),
            (999_600_000, "1.0 s"),
            (2_500_000_000, "2.5 s"),
            (61_000_000_000, "61 s"),
        ] {
            assert_eq!(Latency(Duration::from_nanos(nanos)).to_string(), shown);
        }
    }
}
