#pragma once

#include "framework/net/identity.h"
#include "framework/trace/early_stop.h"
#include "launcher/recipe/plan.h"

namespace strait::plan {

// A plugin file on one host, with the hash of its content: all processes of a run load the same
// bytes as the launcher. Copying the file to another host changes only `file`.
struct PluginCopy {
  std::string file;
  std::string hash;
};

// The plugins of a recipe on this host. StoreError: a file cannot be read.
std::vector<PluginCopy> plugin_copies(const std::vector<std::string>& files);

// The input of a stage process. It contains secret keys, so it is passed on stdin, never in a file
// or on a command line.
struct StageJob {
  Plan plan;
  net::ProcessName process;
  net::RunId run;
  std::uint32_t generation = 0;
  net::CurveKeyPair keys;
  std::string coordinator_endpoint;
  std::string coordinator_key;
  std::map<std::string, std::string> peer_keys;  // by ProcessName::text()
  std::vector<PluginCopy> plugins;               // files on the host of the process
  std::string run_directory;
  std::map<std::string, std::string> binds;  // by link name: the address to listen at
  std::string resume;          // checkpoint directory; empty: from the model's weights
  bool resume_caches = false;  // restore the activation caches of the checkpoint
  // every replica restores its own state; else all start from the agreed model
  bool resume_exact = false;
  std::set<std::uint32_t> absent;  // replicas that the run starts without
  bool joins = false;              // joins replicas that are training: copies the state of one
  bool inference = false;          // answers requests to the model of `resume` and trains nothing
  std::int64_t codec_generation = 0;   // incremented whenever all activation caches are dropped
  trace::EarlyStop::State early_stop;  // what the evaluations so far have shown
};

std::string to_text(const StageJob& job);
// UserError (mismatch): the text is not a job of this build.
StageJob parse_stage_job(const std::string& text);

// Reads a job as the backend writes it: its length in 4 bytes, little endian, then the text. The
// descriptor stays open: end of file on it means that the launcher has exited.
StageJob read_stage_job(int descriptor);

}  // namespace strait::plan
