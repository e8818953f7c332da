//! The Kubernetes manifests and the Helm chart are valid, and their sizes fit the configuration.

use std::{fs, process::Command};

use bytesize::ByteSize;

use super::deploy::{CHART, SIDECAR, STANDALONE, memory, number, path, values, variables};
use crate::support::{
    program::{file, output, text},
    tools,
};

/// The oldest and the newest version of Kubernetes with schemas: native sidecars begin with the first.
const VERSIONS: [&str; 2] = ["1.29", "1.37"];

const IMAGE: &str = "image.repository=registry.example/holdfast";

/// Returns the manifests of the chart with these values, or nothing if Helm is not installed.
async fn rendered(test: &str, settings: &[&str]) -> Option<String> {
    let mut helm = Command::new(tools::checker(test, "helm")?);
    helm.args(["template", "holdfast"]).arg(path(CHART)).args(["--kube-version", VERSIONS[0]]);
    for setting in settings {
        helm.args(["--set", setting]);
    }
    let ran = output(helm).await;
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    Some(text(&ran.stdout))
}

async fn validate(test: &str, manifest: &std::path::Path) {
    let Some(validate) = tools::checker(test, "kubernetes-validate") else { return };
    for version in VERSIONS {
        let mut command = Command::new(&validate);
        command.args(["--strict", "-k", version]).arg(manifest);
        let ran = output(command).await;
        let said = text(&ran.stdout) + &text(&ran.stderr);
        assert!(ran.status.success() && said.contains(" passed "), "{}: {said}", manifest.display());
    }
}

/// Checks that the memory limit covers cache, bytes in flight and the rest, and that the request covers a full cache.
fn assert_memory_fits(pod: &str) {
    let set = variables(pod);
    let of = |name: &str| -> u64 {
        let (_, value) = set.iter().find(|(known, _)| known == name).unwrap();
        value.parse::<ByteSize>().unwrap().as_u64()
    };
    let (cache, in_flight) = (of("HOLDFAST_CACHE__SIZE"), of("HOLDFAST_MAX_BYTES_IN_FLIGHT"));
    let (_, resources) = pod.split_once(" resources:").unwrap();
    let (requests, limits) = resources.split_once("limits:").unwrap();
    let mebibytes = |text: &str| ByteSize::mib(number(text, "memory:")).as_u64();
    assert!(mebibytes(requests) >= memory(cache, 0), "{requests}");
    assert!(mebibytes(limits) >= memory(cache, in_flight), "{limits}");
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn manifests_are_valid() {
    for manifest in [SIDECAR, STANDALONE] {
        validate("manifests_are_valid", &path(manifest)).await;
    }
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn invalid_manifest_is_refused() {
    let Some(validate) = tools::checker("invalid_manifest_is_refused", "kubernetes-validate") else { return };
    let wrong =
        fs::read_to_string(path(SIDECAR)).unwrap().replace("restartPolicy: Always", "restartPolcy: Always");
    let mut command = Command::new(validate);
    command.args(["--strict", "-k", VERSIONS[0]]).arg(file("wrong.yaml", &wrong));
    assert!(!output(command).await.status.success());
}

#[test]
fn memory_of_pods_fits_their_configuration() {
    for manifest in [SIDECAR, STANDALONE] {
        assert_memory_fits(&fs::read_to_string(path(manifest)).unwrap());
    }
}

#[test]
fn sidecar_starts_before_the_application_and_stops_after_it() {
    let pod = fs::read_to_string(path(SIDECAR)).unwrap();
    let (_, init) = pod.split_once("initContainers:").unwrap();
    let (init, containers) = init.split_once(" containers:").unwrap();
    assert!(init.contains("- name: holdfast\n") && !containers.contains("- name: holdfast\n"));
    assert!(init.contains("restartPolicy: Always\n") && init.contains("startupProbe:\n"));
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn chart_passes_lint() {
    let Some(helm) = tools::checker("chart_passes_lint", "helm") else { return };
    let mut lint = Command::new(helm);
    lint.args(["lint", "--strict", "--set", IMAGE]).arg(path(CHART));
    let ran = output(lint).await;
    assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn chart_renders_valid_manifests() {
    const TEST: &str = "chart_renders_valid_manifests";
    let Some(plain) = rendered(TEST, &[IMAGE]).await else { return };
    let kinds = |text: &str| -> Vec<String> {
        let mut kinds: Vec<_> = values(text, "kind: ").into_iter().map(str::to_owned).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(kinds(&plain), ["Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"]);
    let all = [IMAGE, "redis.secretName=redis", "cacheSize=9216", "config=max_batch = 1", "env[0].name=A"];
    let full = rendered(TEST, &all).await.unwrap();
    assert!(kinds(&full).contains(&"ConfigMap".to_owned()));
    assert!(
        full.contains("--config, /etc/holdfast/holdfast.toml]")
            && full.contains("HOLDFAST_CACHE__REDIS__URL")
    );
    for (name, manifests) in [("plain.yaml", &plain), ("full.yaml", &full)] {
        assert_memory_fits(manifests);
        validate(TEST, &file(name, manifests)).await;
    }
    // An operator of Prometheus defines this kind, so that there is no schema.
    let monitored = rendered(TEST, &[IMAGE, "podMonitor.enabled=true"]).await.unwrap();
    assert!(kinds(&monitored).contains(&"PodMonitor".to_owned()));
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn chart_refuses_values_it_does_not_know() {
    let Some(helm) = tools::checker("chart_refuses_values_it_does_not_know", "helm") else { return };
    for (value, word) in
        [("cachesize=512", "cachesize"), ("cacheSize=512MiB", "cacheSize"), ("replicas=-1", "replicas")]
    {
        let mut template = Command::new(&helm);
        template.args(["template", "holdfast", "--set", IMAGE, "--set", value]).arg(path(CHART));
        template.args(["--kube-version", VERSIONS[0]]);
        let ran = output(template).await;
        assert!(!ran.status.success() && text(&ran.stderr).contains(word), "{value}: {}", text(&ran.stderr));
    }
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn chart_names_a_missing_value() {
    let Some(helm) = tools::checker("chart_names_a_missing_value", "helm") else { return };
    let mut template = Command::new(helm);
    template.args(["template", "holdfast"]).arg(path(CHART)).args(["--kube-version", VERSIONS[0]]);
    let ran = output(template).await;
    assert!(
        !ran.status.success() && text(&ran.stderr).contains("set image.repository"),
        "{}",
        text(&ran.stderr)
    );
}
