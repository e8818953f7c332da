//! Rate limits: how many requests a provider gets while it limits the rate, and what clients and operators see.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast::{
    config::Config,
    devchain::{DevChain, Fault},
    upstream::EndpointState,
};
use serde_json::json;
use tokio::time::{self, Instant};

use crate::support::{
    in_memory::{self, InMemory},
    method::BALANCE,
    nodes::{introduced, somebody, twins},
};

/// What happens before the provider limits the rate.
#[derive(Clone, Copy, Debug)]
enum Before {
    Start,
    Calls,
    Restart,
    Outage,
    Idleness,
}

/// Starts a proxy in front of a provider that limits the rate from then on.
async fn limited(before: Before, retry_after: Option<u64>) -> (DevChain, InMemory) {
    let (node, _) = twins();
    let limit = || {
        node.clear_faults();
        node.fail(Fault::Delay(Duration::from_millis(10))).always();
        node.fail(Fault::RateLimited { retry_after }).always();
        node.clear_calls();
    };
    if matches!(before, Before::Start) {
        limit();
        return (node.clone(), in_memory::program(&node, &Config::default()));
    }
    let program = in_memory::program(&node, &Config::default());
    introduced(&program).await;
    let lost = match before {
        Before::Start | Before::Calls => 0,
        Before::Restart => 1,
        // So many failures open the circuit breaker.
        Before::Outage => 20,
        Before::Idleness => {
            time::sleep(Duration::from_secs(60)).await;
            0
        }
    };
    for _ in 0..lost {
        node.fail(Fault::Reset).always();
        assert_eq!(program.call(BALANCE, somebody()).await.0, 502);
    }
    limit();
    (node, program)
}

/// Sends a call each 40 ms for ten seconds. Returns the longest time that a call waited for its error, which must name a
/// time to retry as soon as the provider has limited a call.
async fn crowd(program: InMemory) -> Duration {
    let calls = (0..250u32).map(async |at| {
        time::sleep(Duration::from_millis(40) * at).await;
        let begun = Instant::now();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": BALANCE, "params": somebody() });
        let (status, headers, reply) = program.response(body.to_string()).await;
        if status == 502 && at < 25 {
            // After an outage, the first calls fail before a probe meets the limit.
            return begun.elapsed();
        }
        assert_eq!((status, &reply["error"]["code"]), (429, &json!(-32005)), "{reply}");
        assert!(headers.contains_key("retry-after"), "{headers:?}");
        begun.elapsed()
    });
    join_all(calls).await.into_iter().max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn limited_provider_gets_three_requests_in_ten_seconds() {
    for before in [Before::Calls, Before::Restart, Before::Outage, Before::Idleness, Before::Start] {
        for retry_after in [None, Some(1), Some(5)] {
            let (node, program) = limited(before, retry_after).await;
            let calling = tokio::spawn(crowd(program.clone()));
            time::sleep(Duration::from_secs(10)).await;
            let requests = node.calls_total();
            assert!(requests <= 3, "{before:?}, {retry_after:?}: {requests} requests");
            assert_eq!(program.upstream.status().0[0].state(), EndpointState::RateLimited, "{before:?}");
            let longest = calling.await.unwrap();
            // With a known identity, calls wait for the end of a short pause.
            let most = if matches!(before, Before::Calls | Before::Idleness) { 2_100 } else { 100 };
            assert!(longest < Duration::from_millis(most), "{before:?}, {retry_after:?}: {longest:?}");

            node.clear_faults();
            let begun = Instant::now();
            while program.call(BALANCE, somebody()).await.0 != 200 {
                time::sleep(Duration::from_millis(100)).await;
            }
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(13), "{before:?}, {retry_after:?}: {took:?}");
            assert_eq!(program.upstream.status().0[0].state(), EndpointState::Ok, "{before:?}");
        }
    }
}
