#pragma once

#include "framework/net/identity.h"
#include "framework/net/link.h"
#include "framework/store/manifest.h"
#include "framework/store/sample.h"
#include "framework/trace/step_metrics.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/base/errors.h"
#include "launcher/run/inference.h"

// The messages between the coordinator and the stage processes, as values and as frames (one JSON
// object each). `step` counts updates: 5 means that five updates have been made. Times are seconds.
namespace strait::run {

// ---- about checkpoints

// Stage → coordinator: this process's shards of the checkpoint are durable or, `in_memory`, in its
// host's memory (store::MemoryDirectory). Every process sends the latter for each step of
// checkpoint.memory_every.
struct ShardsWritten {
  store::Step step{};
  std::vector<store::ShardFile> files = {};
  std::uint32_t epoch = 0;  // of the membership in which they were written; not in memory
  bool in_memory = false;
  bool failed = false;       // there are none
  std::string problem = {};  // a sentence: why; empty: skipped, as is usual in memory
  base::ExitCode code = base::ExitCode::storage_io;  // of the problem
};

// Coordinator → stage: the decision about the checkpoint. Of one in memory, the next may begin.
struct CheckpointDecided {
  store::Step step{};
  std::uint32_t epoch = 0;  // in which it was written
  // Why its shards are removed; absent: it is complete. Older ones stay and training continues.
  std::optional<std::string> dropped = {};
  bool again = false;  // write it again, with the current membership
  bool in_memory = false;
  // A replica that becomes a member at this checkpoint.
  std::optional<std::uint32_t> arrives = {};
  // The epoch of the membership with that replica.
  std::optional<std::uint32_t> next_epoch = {};
};

// ---- stage → coordinator. Order: Hello, Ready, then the others; Ended is the last. The answer of
// a trained model is in inference.h.

struct Hello {
  net::ProcessName process;
  std::int64_t pid = 0;
  std::string host;
  std::string build;  // of the program; must equal the launcher's
};

// The weights are loaded and the data links are bound. During training: the answer to an Admit.
struct Ready {
  std::map<std::string, std::string> endpoints;  // by name, of the links bound by this process
  std::optional<std::uint32_t> admission = {};   // number of the Admit that this answers
};

// Bytes on the wire: so far in Progress, of the step in StepDone.
struct LinkTraffic {
  std::string name;  // equal at both ends
  std::string peer;
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  double bytes_per_second = 0;  // measured speed of the path to the peer; 0: unknown
};

// Sent every second from Hello on, by a thread that does not compute.
struct Progress {
  store::Step step{};
  std::int64_t micro_batch = -1;             // -1: between steps
  std::string phase;                         // "loading", "forward", "waiting", "checkpoint", …
  std::string waits_for;                     // a sentence about the wait; empty: it computes
  std::optional<net::ProcessName> waits_on;  // the process that it waits for, if it is a single one
  bool path_is_down = false;                 // the path to that process
  double waited_seconds = 0;
  std::uint64_t finished_actions = 0;  // rises with any progress, including that of loading
  std::vector<LinkTraffic> links;
};

// From every process after every step: its own metrics of the step. A metric of the whole replica
// (loss) may be absent in processes that do not know it.
struct StepDone : trace::StepMetrics {
  store::Step step{};
  std::vector<trace::BoundaryMetrics> boundaries;  // of boundaries that this process sends over
  std::vector<trace::SyncMetrics> sync;            // one; none in a run with one replica
  std::vector<LinkTraffic> links;
};

struct Evaluated {
  store::Step step{};
  double loss = 0;
  std::int64_t tokens = 0;  // of preferences the pairs or rated answers
  // Of preferences only.
  std::optional<double> margin = {};
  std::optional<double> accuracy = {};
};

struct Event {
  std::string name;  // "reconnected"
  std::string text;
};

// The links to a replica are lost. This process waits for Regroup.
struct LostReplica {
  std::uint32_t replica = 0;
  std::string text;
};

// The process exits now: all steps are done and all checkpoints are decided, or it has failed.
struct Ended {
  base::ExitCode code = base::ExitCode::done;
  std::string text = {};  // one sentence; empty: it is done
  // The process that started this one has ended, and will not report the exit of this one.
  bool orphaned = false;
};

// ---- coordinator → stage

// The endpoints of all links, by link name. The first one starts training.
struct Peers {
  std::map<std::string, std::string> endpoints;
};

// A replica joins. The receiver binds its own ends of the links to it and answers with Ready. It
// connects the other links when it gets Peers.
struct Admit {
  // Unique, so that an answer to a cancelled Admit does not count for the next one.
  std::uint32_t number = 0;
  std::uint32_t replica = 0;
  // Process name → public key, of the replica's processes.
  std::map<std::string, std::string> keys;
  // Link name → address to bind.
  std::map<std::string, std::string> binds = {};
};

// At the end of the step. stages::Requests is its other end.
struct AfterStep {
  bool stop = false;       // checkpoint, send Ended, exit
  std::uint32_t save = 0;  // make a checkpoint after the next step; rises with every request
};

// The membership changed. The change is in force from the step that the stages agree on.
struct Regroup {
  std::uint32_t epoch = 0;
  std::vector<std::uint32_t> replicas;  // members, ascending
};

// Exit at once with this code, without Ended: the cause is in another process.
struct Abort {
  base::ExitCode code = base::ExitCode::peer_lost;
  std::string text;
  std::string origin;  // "stage 1.0 (host b)"
};

using StageMessage = std::variant<Hello, Ready, Progress, StepDone, Evaluated, ShardsWritten, Event,
                                  LostReplica, Ended, InferenceAnswer>;
using CoordinatorMessage = std::variant<Peers, Admit, AfterStep, CheckpointDecided, Regroup, Abort,
                                        ExtendBatch, ScoreRows>;

net::Frame format(const StageMessage& message);
net::Frame format(const CoordinatorMessage& message);

// Limits are checked before memory is allocated. MessageError: an unknown type or field, a missing
// field, a wrong type, a number out of range. Pure.
StageMessage parse_stage_message(std::span<const std::byte> frame);
CoordinatorMessage parse_coordinator_message(std::span<const std::byte> frame);

}  // namespace strait::run
