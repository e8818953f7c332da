//! Collects the replies to a batch, and decides whether further calls of the batch begin.

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

/// Size from which an answer is counted against the byte budget while it waits for earlier answers of its batch.
/// Smaller answers are not counted: at most 32 of them (`batch_concurrency`) wait at the same time, and together they
/// are smaller than [`SMALL`].
const COUNTS: usize = SMALL / 32;

/// The reply to one entry of a packet.
pub(in crate::http) struct EntryReply {
    /// The answer or the error. The error is boxed, because few calls fail.
    pub(in crate::http) answer: Result<Answer, Box<ErrorResponse>>,
    /// Where the answer came from; `None` for an error of Holdfast itself.
    pub(in crate::http) outcome: Option<Outcome>,
    pub(in crate::http) deflated: Option<Arc<Deflated>>,
    /// Lease on the byte budget for an answer that waits for earlier answers of its batch.
    lease: Option<Box<ByteLease>>,
    /// Reason why the batch leaves out this answer. If there is one, no further call of the batch begins.
    left_out: Option<LeftOut>,
}

/// Collects the replies to a batch, and counts their bytes against the budget as they arrive.
///
/// Once the first entry has begun, the batch is refused only entry by entry, never as a whole, because a client whose
/// whole batch is refused would send its writes again.
pub(in crate::http) struct Batch<'a> {
    limits: &'a Config,
    begun: Instant,
    writer: ReplyWriter,
    /// Positions of answers that the cache also has deflated.
    marks: Vec<Mark>,
    tally: CacheTally,
    /// Lease on the byte budget for all written replies.
    lease: ByteLease,
    /// The first reason for leaving out calls. If there is one, no further call of the batch begins.
    left_out: Option<LeftOut>,
    /// Number of calls left out so far.
    missing: u64,
}

/// A finished batch.
pub(in crate::http) struct FinishedBatch {
    pub(in crate::http) rope: Rope,
    pub(in crate::http) marks: Vec<Mark>,
    pub(in crate::http) cache_status: HeaderValue,
    pub(in crate::http) lease: ByteLease,
    /// The first reason for leaving out calls, and the number of calls left out for any reason.
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

    /// Returns the reply to an entry that is not a call. Charges the client for a call, because a batch may contain a
    /// thousand such entries.
    pub(in crate::http) fn refused(error: &ErrorObject, caller: &Caller) -> Self {
        match caller.charge(1) {
            Ok(()) => Self::new(Answer::from(error), None, None),
            Err(wait) => Self::failed(rescue::call_error(&CallError::RateLimited { wait })),
        }
    }

    /// Returns the reply to a call that does not begin.
    pub(in crate::http) fn not_begun(reason: LeftOut, caller: &Caller) -> Self {
        // The result of the charge is ignored: a client over its rate limit gets the same reply.
        let _ = caller.charge(1);
        Self::left_out(reason)
    }

    fn left_out(reason: LeftOut) -> Self {
        let answer = Answer::from(&rescue::left_out(reason));
        Self { left_out: Some(reason), ..Self::new(answer, None, None) }
    }

    /// Counts the answer against the byte budget while it waits for earlier answers of its batch.
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

    /// Returns the reason why no further call of the batch begins, if there is one.
    pub(in crate::http) fn over(&self) -> Option<LeftOut> {
        self.left_out
    }

    /// Checks whether the batch has run for too long. If so, no further call begins, but calls that have begun may
    /// finish.
    pub(in crate::http) fn look_at_the_clock(&mut self) {
        let after = self.limits.batch_timeout;
        if self.left_out.is_none() && self.begun.elapsed() >= after {
            self.left_out = Some(LeftOut::BatchTimeout { after });
        }
    }

    /// Appends the reply to an entry, or an error if the reply does not fit. The result of a write is always appended.
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

    /// Counts `more` bytes against the limits. `counted` is the lease on these bytes, if they have been counted
    /// already.
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

    /// Returns the replies; `None` if the batch contains only notifications.
    pub(in crate::http) fn finish(self) -> Option<FinishedBatch> {
        let Self { writer, marks, tally, lease, left_out, missing, .. } = self;
        let rope = writer.finish()?;
        let left_out = left_out.map(|reason| (reason, missing));
        Some(FinishedBatch { rope, marks, cache_status: tally.cache_status(), lease, left_out })
    }
}
