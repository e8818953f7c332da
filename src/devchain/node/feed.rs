//! The development chain on a WebSocket: calls, and subscriptions to `newHeads`.

use crate::devchain::{
    chain::error::RpcError,
    control::{
        handle::{BlockRef, DevChain},
        serve::NodeResponse,
    },
    rpc::{
        args::Args,
        envelope::{RpcEntry, RpcPacket, RpcReply},
    },
};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_tungstenite::{WebSocketStream, accept_async, tungstenite::Message};

/// Serves `chain` to all clients that connect; each change of `cut` closes all open connections.
pub(in crate::devchain) async fn serve(chain: DevChain, listener: TcpListener, cut: watch::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        // Accepting fails if the process has too many open files. The test that uses this node has then failed
        // anyway.
        let Ok((stream, _)) = listener.accept().await else { return };
        let (chain, mut cut) = (chain.clone(), cut.clone());
        cut.mark_unchanged();
        connections.spawn(async move {
            tokio::select! {
                _ = cut.changed() => {}
                _ = Connection::serve(chain, stream) => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Connection of one client.
struct Connection {
    chain: DevChain,
    socket: WebSocketStream<TcpStream>,
    subscriptions: BTreeSet<String>,
    /// Number of subscriptions made so far, which is also the id of the newest.
    made: u64,
    /// The last head that was announced, or the head at the start of the connection.
    seen: BlockRef,
}

// === impl Connection ===

impl Connection {
    /// Serves the connection until either side closes it. The result is always `None`, so that `?` can end the
    /// connection.
    async fn serve(chain: DevChain, stream: TcpStream) -> Option<()> {
        let mut heads = chain.subscribe();
        let socket = accept_async(stream).await.ok()?;
        let seen = *heads.borrow_and_update();
        let mut this = Self { chain, socket, subscriptions: BTreeSet::new(), made: 0, seen };
        loop {
            tokio::select! {
                message = this.socket.next() => match message?.ok()? {
                    Message::Text(text) => this.answer(&text).await?,
                    Message::Close(_) => return None,
                    _ => {}
                },
                changed = heads.changed() => {
                    changed.ok()?;
                    heads.borrow_and_update();
                    this.announce().await?;
                }
            }
        }
    }

    async fn answer(&mut self, text: &str) -> Option<()> {
        let body = Bytes::copy_from_slice(text.as_bytes());
        let NodeResponse::Reply { status: 200, body: reply, .. } = self.chain.serve(body.clone()).await
        else {
            // A WebSocket message has no HTTP status, so any other response closes the connection.
            return None;
        };
        let reply = self.subscribe(&body, &reply).unwrap_or(reply);
        if reply.is_empty() {
            return Some(());
        }
        self.send(String::from_utf8(reply.to_vec()).ok()?).await
    }

    /// Returns the reply to a method that exists only on WebSockets, or `None` if the call is for another method or a
    /// fault has changed its `reply`.
    fn subscribe(&mut self, body: &[u8], reply: &Bytes) -> Option<Bytes> {
        let Ok(RpcPacket::One(RpcEntry::Call { id: id @ Some(_), method, params })) = RpcPacket::parse(body)
        else {
            return None;
        };
        // The chain itself answers these methods with "not found", so any other reply comes from a fault.
        if *reply != RpcReply::new(id, Err(RpcError::method_not_found(&method))).to_bytes() {
            return None;
        }
        let outcome = match method.as_str() {
            "eth_subscribe" => self.begin(params),
            "eth_unsubscribe" => self.end(params),
            _ => return None,
        };
        Some(RpcReply::new(id, outcome).to_bytes())
    }

    fn begin(&mut self, params: Option<&RawValue>) -> Result<Bytes, RpcError> {
        let kind = text(params)?;
        if kind != "newHeads" {
            return Err(RpcError::method_not_found(&format!("{kind} subscription in eth namespace")));
        }
        self.made += 1;
        let id = format!("{:#x}", self.made);
        let reply = format!("\"{id}\"");
        self.subscriptions.insert(id);
        Ok(reply.into())
    }

    fn end(&mut self, params: Option<&RawValue>) -> Result<Bytes, RpcError> {
        match self.subscriptions.remove(&text(params)?) {
            true => Ok(Bytes::from_static(b"true")),
            false => Err(RpcError::server("subscription not found")),
        }
    }

    /// Announces each block that has become canonical since the last announcement.
    async fn announce(&mut self) -> Option<()> {
        let new = self.chain.new_blocks(self.seen);
        if let Some(head) = new.last() {
            self.seen = BlockRef::from(head.as_ref());
        }
        for block in new {
            let header = block.header_json();
            for id in self.subscriptions.clone() {
                self.send(format!(
                    r#"{{"jsonrpc":"2.0","method":"eth_subscription","params":{{"subscription":"{id}","result":{header}}}}}"#
                ))
                .await?;
            }
        }
        Some(())
    }

    async fn send(&mut self, text: String) -> Option<()> {
        self.socket.send(Message::text(text)).await.ok()
    }
}

/// Returns the first argument, which must be text.
fn text(params: Option<&RawValue>) -> Result<String, RpcError> {
    Args::parse(params)?;
    params
        .and_then(|params| {
            serde_json::from_str::<Vec<serde_json::Value>>(params.get()).ok()?.into_iter().next()
        })
        .and_then(|first| first.as_str().map(str::to_owned))
        .ok_or_else(|| RpcError::invalid_params("missing value for required argument 0"))
}
