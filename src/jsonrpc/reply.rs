//! Writes the answer to a packet.

use super::{Answer, RawId, Rope, rope::RopeWriter};

/// Puts replies around results, without copying large ones.
#[derive(Debug)]
pub struct ReplyWriter {
    out: RopeWriter,
    batch: bool,
    any: bool,
}

// === impl ReplyWriter ===

impl ReplyWriter {
    /// Answers a single call: takes at most one reply.
    pub fn single() -> Self {
        Self { out: RopeWriter::default(), batch: false, any: false }
    }

    /// Answers a batch: replies become an array, in the order they are written.
    pub fn batch() -> Self {
        Self { batch: true, ..Self::single() }
    }

    /// How many bytes have been written.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Has no reply been written?
    pub fn is_empty(&self) -> bool {
        !self.any
    }

    /// Appends one reply, and tells where in the whole text its answer begins.
    pub fn write(&mut self, id: &RawId, answer: Answer) -> usize {
        let around = br#",{"jsonrpc":"2.0","id":,"result":}]"#.len() + id.as_bytes().len();
        self.out.reserve(around, answer.len());
        if self.batch {
            self.out.copy(if self.any { b"," } else { b"[" });
        }
        self.any = true;
        self.out.copy(br#"{"jsonrpc":"2.0","id":"#);
        self.out.copy(id.as_bytes());
        let body = match answer {
            Answer::Result(result) => {
                self.out.copy(br#","result":"#);
                result
            }
            Answer::Error(error) => {
                self.out.copy(br#","error":"#);
                error
            }
        };
        let start = self.out.len();
        self.out.push(body);
        self.out.copy(b"}");
        start
    }

    /// The whole text; `None` if there was nothing to answer, as with notifications.
    pub fn finish(mut self) -> Option<Rope> {
        if !self.any {
            return None;
        }
        if self.batch {
            self.out.copy(b"]");
        }
        Some(self.out.finish())
    }
}
