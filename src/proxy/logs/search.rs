//! Finds logs in cached receipts.

use std::sync::{Arc, OnceLock};

use alloy_primitives::Bloom;
use bytes::Bytes;

use super::{found::FoundLogs, tools::LogTools};
use crate::{
    cache::{IndexedLogs, Unsearchable},
    eth::{BlockHash, BlockNumber, Disputes, FilterBlooms, IndexedFilter, LogFilter, LogIndex, Receipts},
    proxy::{
        call::outcome::{LogProof, LogSource},
        error::CallError,
        head::known::proved_bloom,
    },
    verify::{Demand, Kind, Level, Verified},
};

/// Number of cached blocks that are searched in the calling task, which takes a few microseconds each.
const INLINE: usize = 8;

/// A search for the logs that match one filter.
#[derive(Debug)]
pub(super) struct Search {
    tools: LogTools,
    filter: IndexedFilter,
    /// `None` on other chains than Ethereum's, where some logs are in no bloom.
    blooms: OnceLock<Option<FilterBlooms>>,
    /// Demand on receipts.
    demand: Demand,
}

/// Result of a search in the cached content of a block.
#[derive(Debug)]
pub(super) enum Searched {
    Found(FoundLogs),
    /// The logs of these receipts have no index yet.
    Unindexed(Arc<Verified<Receipts>>),
    /// Nodes differ in whether a log matches.
    Disputed,
    /// The cached content does not tell which logs match.
    Cold,
}

// === impl Search ===

impl Search {
    pub(super) fn new(tools: LogTools, filter: LogFilter) -> Arc<Self> {
        // Where clients get proved data only, the node's opinion does not count.
        let disputes = if tools.must_prove() { Disputes::AsGeth } else { Disputes::Fail };
        Arc::new(Self {
            filter: IndexedFilter::new(filter, disputes),
            blooms: OnceLock::new(),
            demand: tools.verifier().demands(Kind::Receipts),
            tools,
        })
    }

    /// Searches the cached content of blocks, until more logs are found than an answer may have.
    pub(super) async fn blocks(self: &Arc<Self>, hashes: Vec<BlockHash>) -> Result<Vec<Searched>, CallError> {
        let search = self.clone();
        let is_short = hashes.len() <= INLINE;
        let work = move || {
            let mut found = 0;
            let mut searched = Vec::with_capacity(hashes.len());
            for hash in hashes {
                searched.push(search.block(hash));
                if let Some(Searched::Found(block)) = searched.last() {
                    found += block.logs.len();
                }
                if found > search.tools.limits.max_results {
                    break;
                }
            }
            searched
        };
        if is_short { Ok(work()) } else { self.tools.apart(0, work).await }
    }

    /// Searches the cached content of a block.
    pub(super) fn block(&self, hash: BlockHash) -> Searched {
        let cache = &self.tools.state().cache;
        if let Some(index) = cache.log_index(hash)
            && self.serves(index.level(), index.lasts(), index.number())
        {
            match self.indexed(&index) {
                Ok(found) => return Searched::Found(found),
                Err(Unsearchable::Disputed) => return Searched::Disputed,
                Err(Unsearchable::Evicted) => {}
            }
        }
        if let Some(receipts) = cache.receipts(hash)
            && let Some(home) = receipts.home()
            && self.serves(receipts.level(), receipts.lasts(), home.number)
        {
            return Searched::Unindexed(receipts);
        }
        if self.is_excluded(hash) { Searched::Found(FoundLogs::excluded()) } else { Searched::Cold }
    }

    /// Searches the logs of receipts that are not cached; `None` if they have an unknown form, or nodes differ in whether
    /// a log matches.
    pub(super) fn receipts(&self, receipts: &Receipts) -> Option<Vec<Bytes>> {
        let mut logs = Vec::new();
        LogIndex::new(receipts).ok()?.find(receipts, &self.filter, &mut logs).ok()?;
        Some(logs)
    }

    fn indexed(&self, index: &IndexedLogs) -> Result<FoundLogs, Unsearchable> {
        let mut logs = Vec::new();
        index.find(&self.filter, &mut logs)?;
        let is_proved = index.level() == Level::Proved;
        let source = LogSource::Receipts;
        Ok(FoundLogs { logs, source, proof: if is_proved { LogProof::Proved } else { LogProof::Structural } })
    }

    /// Returns whether receipts answer calls: they are proved if that is demanded, and a list that only passed
    /// structural checks was requested after its block became final, or the block is not final yet. Nodes make most
    /// mistakes about new blocks.
    fn serves(&self, level: Level, lasts: bool, number: BlockNumber) -> bool {
        match self.demand {
            Demand::Full => level == Level::Proved,
            Demand::Structural => lasts || !self.tools.view().tracker().is_final(number),
            Demand::Auto => true,
        }
    }

    /// Returns whether the cached block or header shows that no log matches.
    fn is_excluded(&self, hash: BlockHash) -> bool {
        let cache = &self.tools.state().cache;
        if cache.peek_block(hash).is_some_and(|block| block.is_proved() && block.is_empty()) {
            return true;
        }
        self.bloom_matches(hash) == Some(false)
    }

    /// Returns whether the proved header of a block shows that logs may match.
    pub(super) fn is_in_bloom(&self, hash: BlockHash) -> bool {
        self.bloom_matches(hash) == Some(true)
    }

    /// Returns whether the bloom of a block matches the filter; `None` if the header is not proved.
    fn bloom_matches(&self, hash: BlockHash) -> Option<bool> {
        let bloom = proved_bloom(&self.tools.state().cache, hash)?;
        // Only here, because it takes a lock, which most searches do not need.
        let blooms = self.blooms.get_or_init(|| {
            self.tools.verifier().is_ethereum().then(|| FilterBlooms::new(self.filter.filter()))
        });
        blooms.as_ref().map(|blooms| bloom != Bloom::ZERO && blooms.may_be_in(&bloom))
    }
}
