//! What has become of a batch so far, and whether more of it is begun.

use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;

use crate::{
    budget::{ByteBudget, ByteLease, SMALL},
    cache::Deflated,
    client::Client,
    http::{
        config::Config,
        error::LeftOut,
        response::{
            cache_status::CacheTally,
            gzip::Mark,
            rescue::{self, ErrorResponse},
        },
    },
    jsonrpc::{Answer, ErrorObject, RawId, ReplyWriter, Rope},
    proxy::{CallError, Caller, Outcome},
};

/// From here on an answer counts while it waits for those before it in its batch: as many smaller ones as run side by
/// side do not come to a large one.
const COUNTS: usize = SMALL / 32;

/// What goes back for one entry.
pub(in crate::http) struct EntryReply {
    /// On the heap, as few calls fail.
    pub(in crate::http) answer: Result<Answer, Box<ErrorResponse>>,
    /// Where the answer came from; `None` if there is none.
    pub(in crate::http) outcome: Option<Outcome>,
    pub(in crate::http) deflated: Option<Arc<Deflated>>,
    /// Of an answer that waits for those before it.
    lease: Option<Box<ByteLease>>,
    /// There is no answer for this reason, and none will be made to what follows.
    left_out: Option<LeftOut>,
}

/// Collects the replies to a batch, and counts them among the bytes that wait to be taken as they come.
///
/// Once entries have begun, nothing is refused but entries, each on its own: whoever is told that a batch as a whole was
/// refused would send the writes in it again.
pub(in crate::http) struct Batch<'a> {
    limits: &'a Config,
    begun: Instant,
    writer: ReplyWriter,
    /// What of it there is a deflated form of.
    marks: Vec<Mark>,
    tally: CacheTally,
    /// Of all that is written.
    lease: ByteLease,
    left_out: Option<LeftOut>,
    /// How many have no answer for it.
    missing: u64,
}

/// A batch that is done.
pub(in crate::http) struct FinishedBatch {
    pub(in crate::http) rope: Rope,
    pub(in crate::http) marks: Vec<Mark>,
    pub(in crate::http) cache_status: HeaderValue,
    pub(in crate::http) lease: ByteLease,
    /// Why some of it was left out, and how many calls: those for another reason, after the first, among them.
    pub(in crate::http) left_out: Option<(LeftOut, u64)>,
}

// === impl EntryReply ===

impl EntryReply {
    pub(in crate::http) fn new(
        answer: Answer,
        outcome: Option<Outcome>,
        deflated: Option<Arc<Deflated>>,
    ) -> Self {
        Self { answer: Ok(answer), outcome, deflated, lease: None, left_out: None }
    }

    pub(in crate::http) fn failed(failure: ErrorResponse) -> Self {
        Self { answer: Err(Box::new(failure)), outcome: None, deflated: None, lease: None, left_out: None }
    }

    /// To what is no call. It costs one all the same: a batch may hold a thousand.
    pub(in crate::http) fn refused(error: &ErrorObject, caller: &Caller) -> Self {
        match caller.charge() {
            Ok(()) => Self::new(Answer::from(error), None, None),
            Err(wait) => Self::failed(rescue::call_error(&CallError::RateLimited { wait })),
        }
    }

    /// Instead of what is not begun.
    pub(in crate::http) fn not_begun(reason: LeftOut, caller: &Caller) -> Self {
        // It has its answer, whatever is left.
        let _ = caller.charge();
        Self::left_out(reason)
    }

    fn left_out(reason: LeftOut) -> Self {
        let answer = Answer::from(&rescue::left_out(reason));
        Self { left_out: Some(reason), ..Self::new(answer, None, None) }
    }

    /// Counts from here on, since it waits for what is before it.
    pub(in crate::http) fn counted(self, bytes: &ByteBudget, client: Option<Client>) -> Self {
        let size = self.answer.as_ref().map_or(0, Answer::len);
        if size < COUNTS {
            return self;
        }
        let mut lease = bytes.lease_of_part(client);
        match lease.grow(size) {
            Ok(()) => Self { lease: Some(Box::new(lease)), ..self },
            Err(full) => Self::left_out(full.into()),
        }
    }
}

// === impl Batch ===

impl<'a> Batch<'a> {
    pub(in crate::http) fn new(limits: &'a Config, bytes: &ByteBudget, client: Option<Client>) -> Self {
        Self {
            limits,
            begun: Instant::now(),
            writer: ReplyWriter::batch(),
            marks: Vec::new(),
            tally: CacheTally::default(),
            lease: bytes.lease(client),
            left_out: None,
            missing: 0,
        }
    }

    /// Why what has not begun is not begun any more: its answer would be thrown away.
    pub(in crate::http) fn over(&self) -> Option<LeftOut> {
        self.left_out
    }

    /// Sees whether its time has come. To be called now and then: what has begun may take its own time.
    pub(in crate::http) fn look_at_the_clock(&mut self) {
        let after = self.limits.batch_timeout;
        if self.left_out.is_none() && self.begun.elapsed() >= after {
            self.left_out = Some(LeftOut::BatchTimeout { after });
        }
    }

    /// Appends the reply to an entry, or the error that it has become. What a write came to is told in any case.
    pub(in crate::http) fn write(&mut self, id: Option<&RawId>, reply: Option<EntryReply>, is_write: bool) {
        let (Some(id), Some(EntryReply { answer, outcome, deflated, lease, left_out })) = (id, reply) else {
            return;
        };
        self.tally.add(outcome);
        self.left_out = self.left_out.or(left_out);
        let answer = answer.unwrap_or_else(|failure| Answer::from(&failure.error));
        if let Err(reason) = self.make_room(answer.len(), lease, is_write) {
            self.left_out = self.left_out.or(Some(reason));
            self.missing += 1;
            self.writer.write(id, Answer::from(&rescue::left_out(reason)));
            return;
        }
        self.missing += u64::from(left_out.is_some());
        let start = self.writer.write(id, answer);
        self.marks.extend(deflated.map(|deflated| Mark { start, deflated }));
    }

    /// Sees that so many bytes more may be written; some of them count already.
    fn make_room(
        &mut self,
        more: usize,
        counted: Option<Box<ByteLease>>,
        is_write: bool,
    ) -> Result<(), LeftOut> {
        let written = self.writer.len();
        let size = written + more;
        let max = self.limits.max_batch_answer.as_u64();
        if size as u64 > max {
            let reason = LeftOut::BatchTooLarge { max };
            if !is_write {
                return Err(reason);
            }
            self.left_out = self.left_out.or(Some(reason));
        }
        if let Some(counted) = counted {
            self.lease.absorb(*counted);
        }
        if is_write {
            self.lease.hold(size);
            return Ok(());
        }
        self.lease.resize(size).map_err(|full| {
            self.lease.hold(written);
            full.into()
        })
    }

    /// All of it; `None` if nobody waits for anything.
    pub(in crate::http) fn finish(self) -> Option<FinishedBatch> {
        let Self { writer, marks, tally, lease, left_out, missing, .. } = self;
        let rope = writer.finish()?;
        let left_out = left_out.map(|reason| (reason, missing));
        Some(FinishedBatch { rope, marks, cache_status: tally.cache_status(), lease, left_out })
    }
}
