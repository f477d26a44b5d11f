#include <ATen/Parallel.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <csignal>

#include "framework/net/node.h"
#include "framework/net/wake_signal.h"
#include "framework/tensors/safetensors_reader.h"
#include "framework/trace/trace_file.h"
#include "kernels/flash_attention.h"
#include "launcher/base/errors.h"
#include "launcher/base/generation_lock.h"
#include "launcher/base/launcher_links.h"
#include "launcher/base/own_program.h"
#include "launcher/base/process_identity.h"
#include "launcher/base/run_file_names.h"
#include "launcher/planner/model_weights.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/recipe/run_files.h"
#include "launcher/recipe/stage_job.h"
#include "launcher/worker/commands.h"
#include "launcher/worker/compute_device.h"
#include "launcher/worker/control_client.h"
#include "launcher/worker/data_links.h"
#include "launcher/worker/inference_stage.h"
#include "launcher/worker/stage_reporter.h"
#include "launcher/worker/stage_saver.h"
#include "launcher/worker/stage_settings.h"
#include "stages/boundary_codecs.h"
#include "stages/stage.h"
#include "stages/stage_state.h"

namespace strait::worker {
namespace {

using Clock = std::chrono::steady_clock;
// Time for Ended to reach the coordinator.
constexpr std::chrono::seconds kFlushTimeout{5};

// Ends the process when its parent (the launcher, or the agent of this host) closes its end of
// stdin, because nobody else would end it. Has its own thread.
class ParentWatch {
 public:
  ParentWatch(int descriptor, ControlClient& control)
      : descriptor_(descriptor), control_(control), thread_([this] { watch(); }) {}
  ~ParentWatch() {
    done_.raise();
    thread_.join();
  }
  ParentWatch(const ParentWatch&) = delete;
  ParentWatch& operator=(const ParentWatch&) = delete;

 private:
  void watch() {
    std::array<pollfd, 2> waited{{{descriptor_, POLLIN, 0}, {done_.descriptor(), POLLIN, 0}}};
    while (true) {
      poll(waited.data(), waited.size(), -1);
      if (waited[1].revents != 0) return;
      if (waited[0].revents == 0) continue;
      char ignored = 0;
      const ssize_t got = read(descriptor_, &ignored, 1);
      if (got == 0 || (got < 0 && errno != EINTR)) control_.exit_without_parent();
    }
  }

  const int descriptor_;
  ControlClient& control_;
  net::WakeSignal done_;
  std::thread thread_;
};

// The coordinator has already been told of this failure.
struct ReportedFailure : std::exception {
  explicit ReportedFailure(base::ExitCode reported) : code(reported) {}
  const char* what() const noexcept override { return "reported to the coordinator"; }
  base::ExitCode code;
};

base::ExitCode report_failure(ControlClient& control, const std::exception& error,
                              const plan::StageJob& job) {
  base::Failure failure = base::describe_failure(error);
  if (failure.code == base::ExitCode::out_of_memory) {
    failure.text += ". " + memory_text(job);
  }
  spdlog::error("{}", failure.text);
  control.send(run::Ended{failure.code, failure.text});
  return failure.code;
}

net::NodeOptions node_options(const plan::StageJob& job) {
  net::NodeOptions options;
  options.name = job.process;
  options.run = job.run;
  options.generation = job.generation;
  options.keys = job.keys;
  options.on_event = [](const std::string& event) { spdlog::info("{}", event); };
  return options;
}

base::LockOwner lock_owner(const plan::StageJob& job) {
  const auto host = static_cast<std::uint32_t>(job.plan.process(job.process).host_index);
  return {job.process, host, job.generation};
}

std::unique_ptr<net::Link> connect_to_coordinator(net::Node& node, const plan::StageJob& job) {
  return node.connect(
      job.coordinator_endpoint,
      base::control_link(job.process, net::ProcessName::coordinator(), job.coordinator_key,
                         std::chrono::seconds(job.plan.recipe.hosts.hold)));
}

// Loads the weights that training begins with; in a resumed run only the frozen ones.
void load_model(stages::Stage& stage, const plan::StageJob& job, StageReporter& reporter) {
  const recipe::Recipe::Model& source = job.plan.recipe.model;
  const models::ModelConfig config = planner::planned_model(job.plan);
  if (source.weights == recipe::Weights::random) {
    stage.initialize();
  } else {
    const planner::ModelWeights weights(source, config);
    bool first = true;
    stage.load([&](const std::string& name) {
      if (std::exchange(first, false)) {
        const auto size = static_cast<std::int64_t>(c10::elementSize(weights.origin(name).type));
        reporter.set_phase("loading weights", size * job.plan.process(job.process).parameters);
      }
      return weights.read(name);
    });
  }
  if (source.adapter.empty() || !job.resume.empty() || job.joins) return;
  const planner::AdapterWeights adapter(source.adapter, config);
  stage.load_trained([&](const std::string& name) { return adapter.read(name); });
}

void load(stages::Stage& stage, const plan::StageJob& job, StageReporter& reporter) {
  if (job.resume.empty() || stage.has_frozen_weights()) load_model(stage, job, reporter);
  if (job.resume.empty()) return;
  reporter.set_phase("loading the checkpoint", job.plan.process(job.process).saved_bytes);
  // Checks sizes only, because the launcher compared every hash before it started this process.
  const tensors::CheckpointReader checkpoint(job.resume, store::Verify::sizes);
  const auto read = [&](const std::string& name) { return checkpoint.read(name); };
  const auto has = [&](const std::string& name) { return checkpoint.find(name) != nullptr; };
  stage.restore(read, has, job.resume_exact);
  if (job.resume_caches) stage.restore_caches(read, has);
}

// Only before the first step: its values are in every checkpoint.
void set_reference(stages::Stage& stage, const plan::StageJob& job) {
  recipe::Recipe::Model source;
  source.path = job.plan.recipe.train.preference.reference;
  if (source.path.empty() || !job.resume.empty()) return;
  const auto weights =
      std::make_shared<const planner::ModelWeights>(source, planner::planned_model(job.plan));
  stage.set_reference([weights](const models::Parameter& parameter) {
    stages::load_parameter(parameter, [&](const std::string& name) { return weights->read(name); });
  });
}

store::Step first_step(const plan::StageJob& job) {
  if (job.resume.empty()) return store::Step{0};
  return store::open_checkpoint(job.resume, store::Verify::sizes).step;
}

// The file is mapped, so its present content is compared with that of the plan.
std::shared_ptr<const data::TokenFile> open_rows(const plan::Plan::Data& data) {
  auto rows = std::make_shared<const data::TokenFile>(data.file);
  plan::check_same_rows(data, rows->hash(), "was planned", "start a run of another name");
  return rows;
}

// Only the first and the last stage read tokens or labels.
stages::StageData stage_data(const plan::StageJob& job, const stages::StageLinks& links) {
  if (links.chunks.front().upstream != nullptr && links.chunks.back().downstream != nullptr) {
    return {};
  }
  stages::StageData data;
  data.training = open_rows(job.plan.train);
  if (job.plan.eval) data.evaluation = open_rows(*job.plan.eval);
  return data;
}

// Makes new links on the control thread when a replica rejoins while this process trains.
void connect_on_admit(ControlClient& control, const std::shared_ptr<DataLinks>& links) {
  control.on_admit(
      [links](const run::Admit& admit) {
        return links->listen_for_replica(admit.replica, admit.keys, admit.binds);
      },
      [links](const run::Peers& peers) { links->connect_to_replica(peers.endpoints); });
}

// The first dead link ends the step, so other dead links would go unnoticed. The coordinator needs
// all of them to decide which replica to evict, so every unreachable one is reported.
void report_lost(std::uint32_t replica, const std::string& why, const plan::StageJob& job,
                 ControlClient& control, const sync::MembershipTracker& tracker,
                 StageReporter& reporter) {
  control.send(run::LostReplica{replica, why});
  // Links reconnect within `hold`; after that the peer is lost.
  const std::chrono::seconds hold(job.plan.recipe.hosts.hold);
  for (const std::uint32_t other : reporter.disconnected_for(hold)) {
    if (other == replica || !tracker.contains(other)) continue;
    control.send(run::LostReplica{other, fmt::format("replica {} is unreachable, too", other)});
  }
}

// Without this line only the speed shows whether a run uses a GPU.
void log_device(at::Device device, const plan::StageJob& job) {
  spdlog::info("computes on {}; boundaries are quantised {}", device.str(),
               stages::codec_device(device).is_cpu() ? "by the CPU" : "there");
  if (!device.is_cpu() && job.plan.recipe.model.dtype == recipe::Dtype::bfloat16) {
    const std::string obstacle = kernels::no_flash_attention(device);
    spdlog::info("attention is computed by {}",
                 obstacle.empty() ? "libtorch's flash attention where a layer allows it"
                                  : "blocks, not by libtorch's flash attention: " + obstacle);
  }
}

// Trains to the last step over connected links.
void run_and_save(stages::Stage& stage, const plan::StageJob& job, ControlClient& control,
                  DataLinks& links, sync::MembershipTracker& tracker, StageReporter& reporter) {
  StageSaver saver(job, control, stage);
  const std::filesystem::path trace =
      std::filesystem::path(job.run_directory) / base::trace_file(job.process.text());
  // A report takes all processes of a step from one start of the run.
  std::error_code absent;
  std::filesystem::remove(trace, absent);
  const auto save = [&](store::Step step) {
    reporter.set_phase("checkpoint", job.plan.process(job.process).saved_bytes);
    reporter.write_latest_steps(trace);
    stages::CheckpointResult result = saver.save(step);
    reporter.count_progress();
    // Done before the stage sends the new member its state over these links.
    if (result.rejoin) links.replace_links(result.rejoin->replica, tracker);
    return result;
  };
  const auto keep = [&saver](store::Step step) { return saver.keep(step); };
  const StageReporter::Watching watching = reporter.watch(stage.waits(), links.watched());
  try {
    stage.run(reporter, save, keep);
    reporter.set_phase("checkpoint", job.plan.process(job.process).saved_bytes);
    saver.finish();
  } catch (const std::exception& error) {
    // Reported before the links close, because their other ends would report that as the cause.
    throw ReportedFailure(report_failure(control, error, job));
  }
  reporter.set_phase("leaving");
  reporter.write_trace(trace);
}

void train(const plan::StageJob& job, net::Node& node, ControlClient& control,
           sync::MembershipTracker& tracker, StageReporter& reporter) {
  plugin::load_copies(job.plugins);
  const at::Device device = compute_device(job);
  const auto accelerators = device.is_cpu() ? std::nullopt : accelerators_here();
  reporter.set_device(
      device, planner::step_work(job.plan, job.process, accelerators ? accelerators->count : 0));
  log_device(device, job);
  const auto links = std::make_shared<DataLinks>(node, job);
  std::optional<stages::Stage> stage;
  // A joining replica makes its stage later: the step at which it starts is not known yet, and
  // another replica sends it the weights.
  if (!job.joins) {
    stage.emplace(stage_options(job, first_step(job), device));
    load(*stage, job, reporter);
    set_reference(*stage, job);
  }
  reporter.set_phase("connecting links");
  control.send(run::Ready{links->endpoints()});
  stages::StageLinks connected = links->connect(control.wait_for_peers());
  connect_on_admit(control, links);
  if (job.joins) {
    reporter.set_phase("waiting for a checkpoint to rejoin at");
    const ControlClient::RejoinPoint rejoin = control.wait_to_rejoin();
    stage.emplace(stage_options(job, rejoin.step, device));
    // Another replica sends the trained weights.
    if (stage->has_frozen_weights()) load_model(*stage, job, reporter);
    reporter.set_phase("receiving state from a replica");
    connected.rejoin = {rejoin.arrival, [&reporter] { reporter.count_progress(); }};
  }
  const stages::StageData data = stage_data(job, connected);
  if (job.plan.recipe.sync.on_loss == recipe::LossRule::continue_run) connected.tracker = &tracker;
  connected.spans = &reporter.spans();
  stage->connect(std::move(connected), data, [&control] { return control.requests(); });
  if (const std::string& sums = stage->group_text(); !sums.empty()) {
    spdlog::info("{}", sums);
    control.send(
        run::Event{"gradient_sums", fmt::format("stage {}: {}", job.process.text(), sums)});
  }
  run_and_save(*stage, job, control, *links, tracker, reporter);
}

std::optional<std::uint64_t> sync_bytes(const plan::StageJob& job) {
  if (job.plan.recipe.pipeline.replicas == 1) return std::nullopt;
  return planner::bfloat16_sync_bytes(job.plan, job.process);
}

}  // namespace

base::ExitCode run_stage_process(int job_descriptor) {
  // A scheduler may signal all processes of a job. The launcher says when a stage ends: it saves
  // first.
  std::signal(SIGTERM, SIG_IGN);
  try {
    const plan::StageJob job = plan::read_stage_job(job_descriptor);
    spdlog::info("{} of run {}, generation {}, build {}", job.process.describe(), job.run.hex(),
                 job.generation, base::build_id());
    const base::GenerationLock lock(job.run_directory, lock_owner(job));
    if (!lock.ended().empty()) spdlog::warn("ended {}", lock.ended());
    at::set_num_threads(static_cast<int>(job.plan.process(job.process).threads));
    net::Node node(node_options(job));
    sync::MembershipTracker tracker(static_cast<std::uint32_t>(job.plan.recipe.pipeline.replicas),
                                    job.process.replica, job.absent);
    ControlClient control(connect_to_coordinator(node, job));
    const ParentWatch parent(job_descriptor, control);  // the rest of stdin is its end of file
    control.track_membership(tracker);
    control.send(run::Hello{job.process, getpid(), base::own_host(), base::build_id()});
    base::ExitCode code = base::ExitCode::done;
    try {
      StageReporter reporter(control, job.process, sync_bytes(job), job.plan.processes.size());
      tracker.on_lost([&](std::uint32_t replica, const std::string& why) {
        report_lost(replica, why, job, control, tracker, reporter);
      });
      if (job.inference) {
        infer(job, node, control, reporter);
      } else {
        train(job, node, control, tracker, reporter);
      }
      control.send(run::Ended{});
    } catch (const ReportedFailure& reported) {
      code = reported.code;
    } catch (const std::exception& error) {
      code = report_failure(control, error, job);
    }
    control.flush(Clock::now() + kFlushTimeout);
    return code;
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    spdlog::error("{}", failure.text);
    return failure.code;
  }
}

}  // namespace strait::worker
