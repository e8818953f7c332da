//! Writes the replies to a packet.

use super::{Answer, RawId, Rope, rope::RopeWriter};

/// Writes replies, without copying large results.
#[derive(Debug)]
pub struct ReplyWriter {
    out: RopeWriter,
    batch: bool,
    any: bool,
}

// === impl ReplyWriter ===

impl ReplyWriter {
    /// Creates a writer for a single call, which takes at most one reply.
    pub fn single() -> Self {
        Self { out: RopeWriter::default(), batch: false, any: false }
    }

    /// Creates a writer for a batch, which writes an array of replies.
    pub fn batch() -> Self {
        Self { batch: true, ..Self::single() }
    }

    /// Returns the number of bytes written so far.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Returns whether no reply has been written.
    pub fn is_empty(&self) -> bool {
        !self.any
    }

    /// Appends one reply, and returns the offset of its answer in the whole text.
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

    /// Returns the whole text; `None` if there is no reply, as for notifications.
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
