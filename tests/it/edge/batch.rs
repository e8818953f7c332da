//! The order of a batch over HTTP.

use std::time::Duration;

use holdfast::devchain::Fault;

use crate::support::{client, proxy, upstream};

#[tokio::test]
async fn batch_is_answered_in_order_with_any_ids() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    node.fail(Fault::Delay(Duration::from_millis(200))).on("eth_gasPrice").once();

    let ids = ["7", "7", "null", "1.0", "1e3", "1180591620717411303424", r#""\u0061""#, r#""""#, "-0"];
    let entries = ids.iter().enumerate().map(|(at, id)| {
        let method = if at == 0 { "eth_gasPrice" } else { "eth_chainId" };
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":[]}}"#)
    });
    let answer = client.send(format!("[{}]", entries.collect::<Vec<_>>().join(", "))).await;
    assert_eq!(answer.status, 200);
    let expected: Vec<_> = ids.iter().map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#)).collect();
    let mut rest = answer.text();
    for start in expected {
        let at = rest.find(&start).unwrap_or_else(|| panic!("no {start} in {rest}"));
        rest = &rest[at + start.len()..];
    }
    assert_eq!(answer.json().as_array().unwrap().len(), ids.len());
}
