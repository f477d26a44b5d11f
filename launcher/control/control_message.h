#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "framework/net/link.h"
#include "framework/net/process_name.h"
#include "framework/store/sample.h"
#include "framework/trace/step_metrics.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/base/errors.h"
#include "launcher/control/checkpoint_message.h"

// What the coordinator and the stages say to each other, as values and as frames (one JSON object
// each). Steps are amounts: `step` 5 means that five updates are made. Times are seconds.
namespace strait::control {

// ---- stage → coordinator; in this order: Hello, Ready, then the others, Done or Failed last.

struct Hello {
  net::ProcessName process;
  std::int64_t pid = 0;
  std::string host;
  std::string build;  // must be the launcher's own
};

// Weights are there and the data links are bound: link name → endpoint of what this process bound.
// In the middle of training: of what it bound for a replica that comes, by the number of that
// Admit.
struct Ready {
  std::map<std::string, std::string> endpoints;
  std::optional<std::uint32_t> admission = {};
};

struct LinkTraffic {
  std::string name;  // as both ends call it
  std::string peer;
  std::uint64_t sent_bytes = 0;  // so far, as put on the wire
  std::uint64_t received_bytes = 0;
};

// Every second from Hello on, by a thread that does not compute.
struct Progress {
  store::Step step{};
  std::int64_t micro_batch = -1;             // -1: between steps
  std::string phase;                         // "loading", "forward", "waiting", "checkpoint", …
  std::string waits_for;                     // a whole sentence; empty: it works
  std::optional<net::ProcessName> waits_on;  // whom it waits for, where that is one process
  double waited_seconds = 0;
  std::uint64_t finished_actions = 0;  // moves whenever this process gets on, loading included
  std::vector<LinkTraffic> links;
};

// From every process, after every step: its own metrics of this step. A metric of the whole replica
// (loss) may be absent in processes that do not know it.
struct StepDone : trace::StepMetrics {
  store::Step step{};
  std::vector<trace::BoundaryMetrics> boundaries;  // those that this process sends over
  std::vector<trace::SyncMetrics> sync;            // one; none in a run of one replica
};

struct Evaluated {
  store::Step step{};
  double loss = 0;
  std::int64_t tokens = 0;
};

struct Event {
  std::string name;  // "reconnected"
  std::string text;
};

// The way to a replica is gone, and this process waits for word on who goes on.
struct LostReplica {
  std::uint32_t replica = 0;
  std::string text;
};

struct Failed {
  base::ExitCode code = base::ExitCode::internal;
  std::string text;  // one sentence
};

// Everything asked for is done, all checkpoints are committed or dropped; the process leaves now.
struct Done {
  store::Step step{};
};

// ---- coordinator → stage

// All endpoints of all processes; training begins.
struct Peers {
  std::map<std::string, std::string> endpoints;
};

// A replica comes (back), whose processes have these keys from now on, by name: bind these links to
// it, each at its address, say so (Ready), connect to the rest when there are Peers. Every Admit
// has a number of its own: what is said of one that came to nothing must not count for the next.
struct Admit {
  std::uint32_t number = 0;
  std::uint32_t replica = 0;
  std::map<std::string, std::string> keys;
  std::map<std::string, std::string> binds = {};
};

struct StopAfterStep {};  // finish the step, checkpoint, send Done, leave

// Replicas have left or come: these take part from the step on that the stages agree on.
struct Regroup {
  std::uint32_t epoch = 0;
  std::vector<std::uint32_t> replicas;  // ascending
};

// Leave at once with this exit code, without a word of your own: the cause is elsewhere.
struct Abort {
  base::ExitCode code = base::ExitCode::peer_lost;
  std::string text;
  std::string origin;  // "stage 1.0 (host b)"
};

using StageMessage = std::variant<Hello, Ready, Progress, StepDone, Evaluated, ShardsWritten,
                                  ShardFailed, Event, LostReplica, Failed, Done>;
using CoordinatorMessage =
    std::variant<Peers, Admit, SaveSoon, StopAfterStep, Committed, Dropped, Regroup, Abort>;

net::Frame format(const StageMessage& message);
net::Frame format(const CoordinatorMessage& message);

// Limits are checked before memory is spent; unknown types and fields, missing fields, wrong types
// and numbers out of range are MessageError. Pure.
StageMessage parse_stage_message(std::span<const std::byte> frame);
CoordinatorMessage parse_coordinator_message(std::span<const std::byte> frame);

}  // namespace strait::control
