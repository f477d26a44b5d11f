#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/net/curve_keys.h"
#include "framework/net/process_name.h"
#include "framework/net/run_id.h"

namespace strait::hosts {

// What a keeper is told, on stdin and nowhere else: it holds secrets. With it anybody who can reach
// the launcher may join the run as this host, in this generation and no other.
struct AgentJob {
  net::RunId run;
  std::string run_name;
  std::uint32_t generation = 0;
  std::uint32_t host = 0;  // which of the plan's hosts it keeps
  std::string host_name;   // what the recipe calls it
  std::string build;       // of the launcher
  net::CurveKeyPair keys;
  std::string launcher_key;
  std::map<std::string, std::string> endpoints;    // of the launcher, by service
  std::map<std::string, std::string> agent_keys;  // of all, by ProcessName::text()
  std::string directory;                           // where it keeps its files; "~" is its home
  std::map<std::string, std::string> environment;  // of the processes it starts
  std::string address;                             // where the others reach it; empty: it looks
  std::vector<std::int64_t> devices;               // that its processes share; empty: all
  std::pair<int, int> ports = {0, 0};              // that it may bind; 0: any
  std::int64_t hold = 120;                         // seconds that it goes on without the launcher
  std::optional<double> up_megabits;               // for shipping
  std::optional<double> down_megabits;

  net::ProcessName name() const { return net::ProcessName::keeper(host); }
};

std::string to_text(const AgentJob& job);
// UserError (mismatch) where the text is not a job of this build.
AgentJob parse_agent_job(const std::string& text);


// The jobs of all keepers in one text, for a carrier that brings everybody the same: what they have
// in common is in it once. Pure.
std::string pack_jobs(const std::vector<AgentJob>& jobs);

// The job at `index` of such a text. UserError: it is no such text, or holds no such job.
AgentJob unpack_job(const std::string& text, std::size_t index);

}  // namespace strait::hosts
