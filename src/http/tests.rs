use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::time;
use tower::{Service, ServiceExt, service_fn};

use super::*;
use crate::{
    budget::ByteBudget,
    jsonrpc::Answer,
    proxy::{self, Answered, CallError, Outcome, Policy},
};

/// A proxy that behaves as the method's name says.
async fn obey(request: proxy::Request) -> Result<Answered, CallError> {
    match request.call().method.as_str() {
        "panic" => panic!("asked to"),
        "hang" => std::future::pending().await,
        "sleep" => time::sleep(Duration::from_secs(1)).await,
        _ => {}
    }
    let size = request.call().params.elements().next().and_then(|size| size.parse().ok()).unwrap_or(0);
    let text = format!("\"{}\"", "x".repeat(size));
    Ok(Answered::new(Answer::Result(text.into()), Outcome::Bypass))
}

fn parts(config: &Config) -> Edge {
    Edge {
        budget: ByteBudget::new(1 << 20, None),
        access: Access::new(config, Policy::default(), Metrics::default()),
        listen: None,
        admin: None,
    }
}

fn edge(
    config: &Config,
) -> impl Service<Request<Full<Bytes>>, Response = Response<impl AnswerBody>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    stack(Reloadable::new(config), parts(config), service_fn(obey))
}

fn post(body: &str) -> Request<Full<Bytes>> {
    let request = Request::post("/").header("content-type", "application/json");
    request.body(Full::from(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
}

fn call(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

async fn send<S, B>(edge: &S, body: &str) -> (StatusCode, Value)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible> + Clone,
    B: AnswerBody,
{
    let Ok(response) = edge.clone().oneshot(post(body)).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

#[tokio::test]
async fn panic_fails_only_its_own_call() {
    let edge = edge(&Config::default());
    let (status, reply) = send(&edge, &call("panic", &json!([])).to_string()).await;
    assert_eq!((status, &reply["error"]["code"]), (StatusCode::INTERNAL_SERVER_ERROR, &json!(-32603)));
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("internal error ") && !message.contains("asked to"), "{message}");

    let batch = json!([call("fine", &json!([])), call("panic", &json!([])), call("fine", &json!([]))]);
    let (status, replies) = send(&edge, &batch.to_string()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(replies[1]["error"]["code"], -32603);
    assert_eq!((&replies[0]["result"], &replies[2]["result"]), (&json!(""), &json!("")));
}

#[tokio::test(start_paused = true)]
async fn batch_entries_run_concurrently_within_the_bound() {
    let edge = edge(&Config { batch_concurrency: 5, ..Config::default() });
    let batch: Vec<_> = (0..20).map(|_| call("sleep", &json!([]))).collect();
    let begun = time::Instant::now();
    let (_, replies) = send(&edge, &json!(batch).to_string()).await;
    assert_eq!(replies.as_array().unwrap().len(), 20);
    assert_eq!(begun.elapsed().as_secs(), 4);
}

#[tokio::test]
async fn oversized_batch_answer_is_an_error_and_ends_the_batch() {
    let config = Config { max_batch_answer: bytesize::ByteSize::kib(10), ..Config::default() };
    let batch = json!([call("fine", &json!([6000])), call("fine", &json!([6000])), call("hang", &json!([]))]);
    let (status, replies) = send(&edge(&config), &batch.to_string()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(replies[0]["result"].as_str().unwrap().len(), 6000);
    for reply in [&replies[1], &replies[2]] {
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(reply["error"]["code"] == -32600 && message.contains("exceed 10240 bytes"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_in_a_batch_run_alone_and_in_order() {
    let running = Arc::new(AtomicUsize::new(0));
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (seen, order) = (running.clone(), log.clone());
    let proxy = service_fn(move |request: proxy::Request| {
        let (running, log) = (seen.clone(), order.clone());
        async move {
            let method = request.call().method.as_str().to_owned();
            let others = running.fetch_add(1, Relaxed);
            log.lock().unwrap().push((method.clone(), others));
            time::sleep(Duration::from_secs(1)).await;
            running.fetch_sub(1, Relaxed);
            Ok(Answered::new(Answer::Result("0".into()), Outcome::Bypass))
        }
    });
    let edge = stack(Reloadable::new(&Config::default()), parts(&Config::default()), proxy);
    let methods = ["read", "read", "eth_sendRawTransaction", "eth_sendRawTransaction", "read", "read"];
    let batch: Vec<_> = methods.iter().map(|method| call(method, &json!([]))).collect();
    let begun = time::Instant::now();
    let (_, replies) = send(&edge, &json!(batch).to_string()).await;
    assert_eq!(replies.as_array().unwrap().len(), methods.len());
    assert_eq!(begun.elapsed().as_secs(), 4);
    let log = log.lock().unwrap();
    let order: Vec<_> = log.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(order, methods);
    let alone = log.iter().filter(|(method, others)| method.starts_with("eth_send") && *others == 0);
    assert_eq!(alone.count(), 2);
}

#[tokio::test]
async fn unread_answers_of_one_client_leave_room_for_others() {
    let keys = [(); 2].map(|()| NewKey::random().unwrap());
    let key = |key: &NewKey| KeyConfig {
        name: "client".to_owned(),
        sha256: key.hash(),
        allow: None,
        deny: Vec::new(),
        rate: None,
        burst: None,
    };
    let edge = edge(&Config { keys: keys.iter().map(key).collect(), ..Config::default() });
    let ask = |key: &NewKey, packet: &Value| {
        let mut request = post(&packet.to_string());
        request.headers_mut().insert("x-api-key", key.reveal().parse().unwrap());
        edge.clone().oneshot(request)
    };
    let [greedy, modest] = &keys;
    let large = call("fine", &json!([100 << 10]));

    // The budget of these tests is 1 MiB. Batches get the answers that fit. Once the budget is used up, a single large
    // call is refused.
    let mut untaken = Vec::new();
    for _ in 0..4 {
        untaken.push(ask(greedy, &json!(vec![large.clone(); 4])).await);
    }
    let Ok(refused) = ask(greedy, &large).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    // The client always gets the result of a write, and small answers do not count against the budget.
    let Ok(told) = ask(greedy, &call("eth_sendRawTransaction", &json!([100 << 10]))).await;
    let Ok(small) = ask(greedy, &call("fine", &json!([1000]))).await;
    assert_eq!((told.status(), small.status()), (StatusCode::OK, StatusCode::OK));
    drop(told);

    for packet in [large.clone(), json!([large])] {
        let Ok(answer) = ask(modest, &packet).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let answer = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(answer.len() > 100 << 10, "{answer:?}");
    }
    drop(untaken);
    let Ok(answer) = ask(greedy, &large).await;
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn batch_answers_count_as_soon_as_they_exist() {
    let edge = edge(&Config::default());
    let large = call("fine", &json!([700 << 10]));
    // The large answer comes before a slow call, or after it.
    for batch in [json!([large, call("hang", &json!([]))]), json!([call("hang", &json!([])), large])] {
        let hanging = tokio::spawn(edge.clone().oneshot(post(&batch.to_string())));
        tokio::task::yield_now().await;
        assert_eq!(send(&edge, &large.to_string()).await.0, StatusCode::SERVICE_UNAVAILABLE);
        // Other batches get the answers that fit, and an error for each of the other calls.
        let small = call("fine", &json!([10]));
        let (status, replies) = send(&edge, &json!([small, large, small]).to_string()).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(replies[0]["result"].as_str().unwrap().len(), 10);
        assert_eq!(
            (&replies[1]["error"]["code"], &replies[2]["error"]["code"]),
            (&json!(-32013), &json!(-32013))
        );
        hanging.abort();
        let _ = hanging.await;
        assert_eq!(send(&edge, &json!([small, large, small]).to_string()).await.1[1]["error"], Value::Null);
    }
}

#[tokio::test]
async fn small_answers_waiting_behind_a_slow_one_count() {
    let edge = edge(&Config::default());
    let mut batch = vec![call("hang", &json!([]))];
    batch.extend(vec![call("fine", &json!([32 << 10])); 30]);
    let hanging = tokio::spawn(edge.clone().oneshot(post(&json!(batch).to_string())));
    tokio::task::yield_now().await;
    let large = call("fine", &json!([100 << 10])).to_string();
    assert_eq!(send(&edge, &large).await.0, StatusCode::SERVICE_UNAVAILABLE);
    hanging.abort();
    let _ = hanging.await;
    assert_eq!(send(&edge, &large).await.0, StatusCode::OK);
}

#[tokio::test]
async fn answer_to_a_write_is_sent_even_over_budget() {
    let config = Config { max_batch_answer: bytesize::ByteSize::kib(900), ..Config::default() };
    let edge = edge(&config);
    let large = call("fine", &json!([700 << 10]));
    let Ok(untaken) = edge.clone().oneshot(post(&large.to_string())).await;
    // If the client got an error, it would send its write again.
    let write = call("eth_sendRawTransaction", &json!([400 << 10]));
    let (status, reply) = send(&edge, &write.to_string()).await;
    assert_eq!((status, reply["result"].as_str().map(str::len)), (StatusCode::OK, Some(400 << 10)));
    let read = call("fine", &json!([300 << 10]));
    let (status, replies) = send(&edge, &json!([write, read, write]).to_string()).await;
    assert_eq!((status, replies[0]["result"].as_str().map(str::len)), (StatusCode::OK, Some(400 << 10)));
    // The other calls did not begin, so the client may send them again.
    assert_eq!(
        (&replies[1]["error"]["code"], &replies[2]["error"]["code"]),
        (&json!(-32013), &json!(-32013))
    );
    drop(untaken);

    // The answer to a write is also sent if it exceeds the limit of a batch.
    let (_, replies) = send(&edge, &json!([large, write, call("hang", &json!([]))]).to_string()).await;
    assert_eq!(replies[1]["result"].as_str().map(str::len), Some(400 << 10));
    assert_eq!(replies[2]["error"]["code"], -32600);
}

#[tokio::test(start_paused = true)]
async fn batch_starts_no_entry_after_its_deadline() {
    let begun = Arc::new(AtomicUsize::new(0));
    let seen = begun.clone();
    let proxy = service_fn(move |_: proxy::Request| {
        seen.fetch_add(1, Relaxed);
        async {
            time::sleep(Duration::from_secs(25)).await;
            Ok(Answered::new(Answer::Result("0".into()), Outcome::Bypass))
        }
    });
    let config = Config::default();
    let edge = stack(Reloadable::new(&config), parts(&config), proxy);
    for (method, each) in [("eth_sendRawTransaction", 1), ("read", config.batch_concurrency)] {
        begun.store(0, Relaxed);
        let batch = vec![call(method, &json!([])); 1000];
        let start = time::Instant::now();
        let (status, replies) = send(&edge, &json!(batch).to_string()).await;
        assert_eq!(status, StatusCode::OK);
        // Calls begin at 0 s, 25 s and 50 s, and those that begin at 50 s may finish.
        assert_eq!((start.elapsed().as_secs(), begun.load(Relaxed)), (75, 3 * each), "{method}");
        assert_eq!(replies.as_array().unwrap().len(), 1000);
        assert_eq!(replies[3 * each - 1]["result"], 0);
        assert!((3 * each..1000).all(|at| replies[at]["error"]["code"] == -32011), "{method}");
    }
}

#[tokio::test]
async fn batch_entries_count_in_addition_to_their_bytes() {
    let config = Config::default();
    let edge = Edge { budget: ByteBudget::new(64 << 10, None), ..parts(&config) };
    let edge = stack(Reloadable::new(&config), edge, service_fn(obey));
    let batch =
        |entries: usize| format!("[{}]", vec![r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#; entries].join(","));
    let (status, _) = send(&edge, &batch(50)).await;
    assert_eq!(status, StatusCode::OK);
    let (status, reply) = send(&edge, &batch(200)).await;
    assert_eq!((status, &reply["error"]["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!(-32013)));
    let (status, _) = send(&edge, &batch(50)).await;
    assert_eq!(status, StatusCode::OK, "the bytes are released");
}
