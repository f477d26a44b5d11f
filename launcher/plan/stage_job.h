#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/net/curve_keys.h"
#include "framework/net/process_name.h"
#include "framework/net/run_id.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/plugin_copy.h"

namespace strait::plan {

// All that a stage process is told, on stdin and nowhere else: it holds secrets.
struct StageJob {
  Plan plan;
  net::ProcessName process;
  net::RunId run;
  std::uint32_t generation = 0;
  net::CurveKeyPair keys;
  std::string coordinator_endpoint;
  std::string coordinator_key;
  std::map<std::string, std::string> peer_keys;  // by ProcessName::text()
  std::vector<PluginCopy> plugins;               // as they lie on its host
  std::string run_directory;
  std::map<std::string, std::string> binds;  // links that it listens for, each with the address
  std::string resume;          // the checkpoint to go on from; empty: from the model's weights
  bool resume_caches = false;  // with what it remembers of samples
  bool resume_exact = false;   // every replica with its own state; else all from the agreed model
  std::set<std::uint32_t> absent;  // replicas that the run begins without
  bool joins = false;  // comes to others which train already: learns all from one of them
  std::int64_t codec_generation = 0;  // counts how often that was dropped, at all ends alike
};

std::string to_text(const StageJob& job);
// UserError (mismatch) where the text is not a job of this build.
StageJob parse_stage_job(const std::string& text);

// Reads a job as the backend writes it: its length in 4 bytes, little endian, then the text.
// Leaves the descriptor open: its end tells that the launcher is gone.
StageJob read_stage_job(int descriptor);

}  // namespace strait::plan
