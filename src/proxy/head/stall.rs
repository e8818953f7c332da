//! Measures the block interval of a chain, and decides when to compare the head with the head of another endpoint: if
//! the head stalls, or if the last comparison was long ago.
//!
//! A node that lost its peers keeps answering without showing new blocks. Only a comparison with another endpoint
//! distinguishes this node from a chain without new blocks. This module reads no clock; callers pass the time.

use std::time::Duration;

use tokio::time::Instant;

use crate::{backoff::Backoff, eth::BlockNumber};

/// Block interval before the first measurement: Ethereum's.
const USUAL: Duration = Duration::from_secs(12);

/// Number of usual intervals without a block after which the head has stalled. It is more than one, because single
/// slots often have no block.
const MISSING: u32 = 4;

/// Shortest and longest time after which a head has stalled, for very fast and very slow chains.
const SHORTEST: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(300);

/// Longest pause between two comparisons of a stalled head. The first pause is the time after which the head counts as
/// stalled, even if that is longer. Pauses double up to this value, because other endpoints may bill each call.
const LOOKS: Duration = Duration::from_secs(60);

/// Interval of regular comparisons, which are needed because a primary whose head moves can still be behind. The first
/// comparison comes soon after the start.
const COMPARED: Duration = Duration::from_secs(300);

/// Number of blocks by which another endpoint must be ahead to become primary while the head moves. A smaller lead is
/// normal, because nodes learn of a block within seconds of each other.
const BEHIND: u64 = 4;

/// Divisor of the moving average of the block interval: the weight of a new observation is one eighth.
const MEMORY: u32 = 8;

/// Share of the usual interval by which the next block is expected early: a sixteenth.
const EARLY: u32 = 16;

/// Block interval of the chain, and the comparisons that are due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Number of the head, and the time at which the proxy first saw it.
    head: Option<(BlockNumber, Instant)>,
    /// Whether the head was new when the proxy first saw it. The first head was not.
    was_new: bool,
    /// Usual time between two blocks.
    interval: Option<Duration>,
    /// Time of the last comparison since the head stalled, and the pause before the next comparison.
    looked: Option<(Instant, Backoff)>,
    /// Time of the next regular comparison.
    compares: Option<Instant>,
}

// === impl Pace ===

impl Pace {
    /// Records a new head.
    pub(super) fn record_head(&mut self, head: BlockNumber, now: Instant) {
        let grown = self.head.filter(|_| self.was_new).and_then(|(before, since)| {
            let blocks = u32::try_from(head.0.checked_sub(before.0)?).ok().filter(|blocks| *blocks > 0)?;
            Some(now.duration_since(since) / blocks)
        });
        self.interval = match (self.interval, grown) {
            (Some(usual), Some(grown)) => Some((usual * (MEMORY - 1) + grown) / MEMORY),
            (usual, grown) => usual.or(grown),
        };
        self.was_new = self.head.is_some();
        (self.head, self.looked) = (Some((head, now)), None);
        self.compares.get_or_insert(now + SHORTEST);
    }

    /// If a comparison is due, returns by how many blocks another endpoint must be ahead to become primary. A
    /// comparison is due if the head has stalled, or if the last comparison was long ago. The caller then compares the
    /// heads.
    pub(super) fn comparison_due(&mut self, now: Instant) -> Option<u64> {
        let margin = match self.is_stalled(now) {
            true => 1,
            false if self.compares.is_some_and(|due| due <= now) => BEHIND,
            false => return None,
        };
        // A comparison of a stalled head also postpones the next regular comparison.
        self.compares = Some(now + COMPARED);
        Some(margin)
    }

    fn is_stalled(&mut self, now: Instant) -> bool {
        let patience = (self.interval() * MISSING).clamp(SHORTEST, LONGEST);
        let Some((_, since)) = self.head else { return false };
        let (last, mut backoff) = self.looked.unwrap_or((since, Backoff::new(patience, LOOKS)));
        let is_due = now.duration_since(last) >= backoff.last_pause();
        if is_due {
            backoff.next_pause();
            self.looked = Some((now, backoff));
        }
        is_due
    }

    /// Returns whether the next block may be there. It may come before the usual interval is over, because the proxy
    /// saw the last one only at the next poll.
    pub(super) fn expects_block(&self, now: Instant) -> bool {
        let usual = self.interval();
        self.age(now).is_some_and(|age| age >= usual - usual / EARLY)
    }

    fn interval(&self) -> Duration {
        self.interval.unwrap_or(USUAL)
    }

    /// Returns the time since the head last changed.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        self.head.map(|(_, since)| now.duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn going(interval: Duration, start: Instant) -> (Pace, Instant) {
        let mut pace = Pace::default();
        for block in 0..50u32 {
            pace.record_head(BlockNumber(block.into()), start + interval * block);
        }
        (pace, start + interval * 49)
    }

    /// Returns the seconds after the last block at which a comparison of a stalled head is due.
    fn looks(mut pace: Pace, last: Instant, seconds: u64) -> Vec<u64> {
        (0..seconds).filter(|second| pace.is_stalled(last + Duration::from_secs(*second))).collect()
    }

    #[test]
    fn stall_threshold_depends_on_the_block_interval() {
        let start = Instant::now();
        for (interval, first) in [(250, 15), (2_000, 15), (12_000, 48), (60_000, 240), (3_600_000, 300)] {
            let (pace, last) = going(Duration::from_millis(interval), start);
            assert_eq!(looks(pace, last, 400).first(), Some(&first), "{interval} ms");
        }
        let mut pace = Pace::default();
        assert!(!pace.is_stalled(start), "no head yet");
        pace.record_head(BlockNumber(7), start);
        assert_eq!(looks(pace, start, 400).first(), Some(&48));
    }

    #[test]
    fn comparisons_back_off_until_the_next_block() {
        let (mut pace, last) = going(Duration::from_secs(2), Instant::now());
        assert_eq!(looks(pace, last, 250), [15, 30, 60, 120, 180, 240]);
        assert!(pace.is_stalled(last + Duration::from_secs(20)));
        pace.record_head(BlockNumber(50), last + Duration::from_secs(21));
        assert!(!pace.is_stalled(last + Duration::from_secs(30)));
        assert_eq!(pace.age(last + Duration::from_secs(30)), Some(Duration::from_secs(9)));
    }

    #[test]
    fn blocks_during_a_pause_do_not_slow_the_pace() {
        let start = Instant::now();
        let (mut pace, last) = going(Duration::from_secs(2), start);
        let later = last + Duration::from_secs(3600);
        pace.record_head(BlockNumber(49 + 1800), later);
        assert_eq!(looks(pace, later, 60).first(), Some(&15));
        // A rollback does not change the interval either.
        pace.record_head(BlockNumber(3), later);
        assert_eq!(looks(pace, later, 60).first(), Some(&15));
    }

    #[test]
    fn block_is_expected_shortly_before_the_usual_interval_is_over() {
        let start = Instant::now();
        assert!(!Pace::default().expects_block(start), "no head yet");
        for interval in [250, 2_000, 12_000] {
            let (pace, last) = going(Duration::from_millis(interval), start);
            let expects = |millis| pace.expects_block(last + Duration::from_millis(millis));
            assert_eq!(
                (0..).find(|millis| expects(*millis)),
                Some((interval * 15).div_ceil(16)),
                "{interval} ms"
            );
        }
    }

    #[test]
    fn age_of_the_first_head_does_not_count_as_an_interval() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        for (block, second) in [(1, 0), (2, 1), (3, 13)] {
            pace.record_head(BlockNumber(block), start + Duration::from_secs(second));
        }
        let expects = |second: u64| pace.expects_block(start + Duration::from_secs(13 + second));
        assert_eq!((expects(11), expects(12)), (false, true));
    }

    #[test]
    fn growing_chain_is_compared_periodically() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        let mut compared = Vec::new();
        for second in 0..1000 {
            let now = start + Duration::from_secs(second);
            if second.is_multiple_of(12) {
                pace.record_head(BlockNumber(second / 12), now);
            }
            match pace.comparison_due(now) {
                Some(BEHIND) => compared.push(second),
                Some(other) => panic!("{other} at {second} s"),
                None => {}
            }
        }
        assert_eq!(compared, [15, 315, 615, 915]);
    }
}
