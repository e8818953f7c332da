//! Formats sets of block numbers.

use std::{collections::BTreeSet, fmt};

/// Formats numbers and runs of numbers: `3, 5..8`.
pub(super) struct Numbers<'a>(pub(super) &'a BTreeSet<u64>);

/// Maximum number of runs that are shown, because people do not read longer lists.
const MOST_SHOWN: usize = 10;

// === impl Numbers ===

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for number in self.0.iter().copied() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => runs.push((number, number)),
            }
        }
        let shown = runs
            .iter()
            .take(MOST_SHOWN)
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}..{last}") });
        f.write_str(&shown.collect::<Vec<_>>().join(", "))?;
        if runs.len() > MOST_SHOWN { f.write_str(", …") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_numbers_print_as_a_range() {
        assert_eq!(Numbers(&BTreeSet::from([3, 5, 6, 7, 9])).to_string(), "3, 5..7, 9");
        let many = (0..100).map(|at| at * 2).collect();
        assert_eq!(Numbers(&many).to_string(), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, …");
    }
}
