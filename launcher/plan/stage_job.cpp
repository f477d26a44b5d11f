#include "launcher/plan/stage_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "launcher/base/user_error.h"

namespace strait::plan {
namespace {

using nlohmann::json;

constexpr std::uint32_t kMaxJobBytes = 64U << 20U;

void read_exactly(int descriptor, char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t got = read(descriptor, to, size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw std::system_error(errno, std::generic_category(), "reading the job on stdin");
    if (got == 0) {
      throw base::UserError(base::ExitCode::bad_input,
                      "strait-stage is started by strait, which hands it a plan on stdin; stdin "
                      "ended before the plan did");
    }
    to += got;
    size -= static_cast<std::size_t>(got);
  }
}

}  // namespace

std::string to_text(const StageJob& job) {
  return json{{"plan", to_json(job.plan)},
              {"process", job.process.text()},
              {"run", job.run.hex()},
              {"generation", job.generation},
              {"public_key", job.keys.public_key},
              {"secret_key", job.keys.secret_key},
              {"coordinator_endpoint", job.coordinator_endpoint},
              {"coordinator_key", job.coordinator_key},
              {"peer_keys", job.peer_keys},
              {"plugins", to_json(job.plugins)},
              {"run_directory", job.run_directory},
              {"binds", job.binds},
              {"resume", job.resume},
              {"resume_caches", job.resume_caches},
              {"resume_exact", job.resume_exact},
              {"absent", job.absent},
              {"joins", job.joins},
              {"codec_generation", job.codec_generation}}
      .dump();
}

StageJob parse_stage_job(const std::string& text) {
  try {
    const json from = json::parse(text);
    StageJob job;
    job.plan = plan_from_json(from.at("plan"));
    const auto process = net::ProcessName::parse(from.at("process").get<std::string>());
    const auto run = net::RunId::parse(from.at("run").get<std::string>());
    if (!process || !run) throw base::UserError(base::ExitCode::mismatch, "the job on stdin names no process");
    job.process = *process;
    job.run = *run;
    job.generation = from.at("generation");
    job.keys = {from.at("public_key"), from.at("secret_key")};
    job.coordinator_endpoint = from.at("coordinator_endpoint");
    job.coordinator_key = from.at("coordinator_key");
    job.peer_keys = from.at("peer_keys");
    job.plugins = plugin_copies_from_json(from.at("plugins"));
    job.run_directory = from.at("run_directory");
    job.binds = from.at("binds");
    job.resume = from.at("resume");
    job.resume_caches = from.at("resume_caches");
    job.resume_exact = from.at("resume_exact");
    job.absent = from.at("absent").get<std::set<std::uint32_t>>();
    job.joins = from.at("joins");
    job.codec_generation = from.at("codec_generation");
    return job;
  } catch (const json::exception& error) {
    throw base::UserError(base::ExitCode::mismatch,
                    fmt::format("the job on stdin is not one of this build: {}", error.what()));
  }
}

StageJob read_stage_job(int descriptor) {
  std::array<unsigned char, 4> prefix{};
  read_exactly(descriptor, static_cast<char*>(static_cast<void*>(prefix.data())), prefix.size());
  std::uint32_t size = 0;
  std::memcpy(&size, prefix.data(), prefix.size());
  if (size > kMaxJobBytes) {
    throw base::UserError(base::ExitCode::bad_input, fmt::format("the job on stdin claims {} bytes; at most {} "
                                                     "are possible",
                                                     size, kMaxJobBytes));
  }
  std::string text(size, '\0');
  read_exactly(descriptor, text.data(), text.size());
  return parse_stage_job(text);
}

}  // namespace strait::plan
