#include "launcher/planner/fit.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "launcher/base/errors.h"
#include "launcher/base/machine.h"
#include "launcher/planner/plan_load.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/planned_layout.h"
#include "launcher/recipe/known_gpus.h"
#include "stages/partition.h"

namespace strait::planner {
namespace {

namespace fs = std::filesystem;

constexpr std::array kFitHosts = {1, 2, 4, 8};
constexpr std::array kFitGpus = {"RTX 4080", "RTX 3090", "RTX A6000", "A100 80GB"};
constexpr std::int64_t kFitHostMemory = std::int64_t{128} << 30;
// Lines on which two hosts are compared with one.
constexpr std::array kFitLines = {10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 4000};

enum class Training : std::uint8_t { full, lora, qlora };
constexpr std::array kTrainings = {std::pair{Training::full, "full"},
                                   std::pair{Training::lora, "LoRA"},
                                   std::pair{Training::qlora, "QLoRA"}};

// A config.json, as far as shapes go.
std::string fit_config(const char* architecture, const char* type, int hidden, int inner,
                       int layers, int heads, int kv_heads, int vocabulary, bool tied) {
  return nlohmann::json{{"architectures", {architecture}},
                        {"model_type", type},
                        {"hidden_size", hidden},
                        {"intermediate_size", inner},
                        {"num_hidden_layers", layers},
                        {"num_attention_heads", heads},
                        {"num_key_value_heads", kv_heads},
                        {"vocab_size", vocabulary},
                        {"tie_word_embeddings", tied},
                        {"max_position_embeddings", 32768},
                        {"rms_norm_eps", 1e-6},
                        {"rope_theta", 5e5},
                        {"hidden_act", "silu"},
                        {"bos_token_id", 1},
                        {"eos_token_id", 2}}
      .dump();
}

double two_digits(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  return std::round(value / unit) * unit;
}

// Plans a model from files of its own, which are removed with this object.
class FitPlanner {
 public:
  explicit FitPlanner(const FitModel& model) : base_(model.recipe) {
    if (!model.config.empty()) {
      base_.model.path = folder_.string();
      std::ofstream(folder_ / "config.json") << model.config;
    }
    const std::int64_t tokens = base_.train.batch * base_.data.row;
    std::ofstream(folder_ / "text.txt") << std::string(static_cast<std::size_t>(tokens), 'a');
  }

  // The fastest layout that uses all hosts; moments lose bits only for memory or a clearly shorter
  // step. Nullopt: none fits.
  std::optional<FitPlan> fastest(Training training, const char* gpu, int hosts,
                                 double megabits) const {
    const auto worth = [](const FitPlan& plan) {
      const bool exact = plan.moments == recipe::Moments::float32;
      return plan.tokens_per_second / (exact ? 1 : kClearlySlower);
    };
    std::optional<FitPlan> best;
    for (int replicas = 1; replicas <= hosts; replicas *= 2) {
      recipe::Recipe recipe = recipe_of(training, gpu, hosts, megabits);
      recipe.pipeline.stages = hosts / replicas;
      recipe.pipeline.replicas = replicas;
      const auto one = planned(recipe);
      if (one && (!best || worth(*one) > worth(*best))) best = one;
    }
    return best;
  }

 private:
  recipe::Recipe recipe_of(Training training, const char* gpu, int hosts, double megabits) const {
    recipe::Recipe recipe;
    recipe.name = "fit";
    recipe.model.path = base_.model.path;
    recipe.model.weights = recipe::Weights::random;  // shapes are enough
    recipe.model.dtype = base_.model.dtype;
    recipe.model.device = recipe::Device::cuda;
    recipe.model.choose_recompute = true;
    if (training != Training::full) {
      recipe.model.lora = base_.model.lora;
      recipe.model.adapter = base_.model.adapter;
      // Those of an adapter are in its files.
      if (!recipe.model.lora && recipe.model.adapter.empty()) recipe.model.lora.emplace();
    }
    if (training == Training::qlora) recipe.model.quantization = recipe::Quantization::nf4;
    recipe.data.train = {{(folder_ / "text.txt").string()}};
    recipe.data.tokenizer = "bytes";
    recipe.data.row = base_.data.row;
    recipe.train.steps = 1;
    recipe.train.batch = base_.train.batch;
    recipe.train.micro_batch = base_.train.micro_batch;
    recipe.train.choose_moments = recipe.train.choose_offload = true;
    recipe.codec = base_.codec;
    recipe.checkpoint.every = 0;
    recipe.hosts.backend = recipe::BackendKind::ssh;
    recipe.hosts.link_megabits = megabits;
    for (int i = 0; i < hosts; ++i) {
      recipe.hosts.list.push_back(
          {.name = fmt::format("host{}", i), .memory = kFitHostMemory, .device = gpu});
    }
    return recipe;
  }

  static std::optional<FitPlan> planned(const recipe::Recipe& recipe) {
    const auto hosts = static_cast<int>(recipe.hosts.list.size());
    try {
      const plan::Plan plan = make_plan(recipe).plan;
      const auto tokens = static_cast<double>(recipe.train.batch * recipe.data.row);
      return FitPlan{.hosts = hosts,
                     .megabits = *recipe.hosts.link_megabits,
                     .stages = recipe.pipeline.stages,
                     .replicas = recipe.pipeline.replicas,
                     .tokens_per_second = tokens / layout_of(plan).step_seconds,
                     .recompute = plan.recipe.model.recompute,
                     .moments = plan.recipe.train.moments,
                     .offload = plan.recipe.train.offload};
    } catch (const stages::PartitionError&) {
      return std::nullopt;
    } catch (const base::UserError& error) {
      // Fewer layers than stages, or rows than replicas. A fault of the recipe shows on one host.
      if (hosts == 1 && error.code() != base::ExitCode::out_of_memory) throw;
      return std::nullopt;
    }
  }

  recipe::Recipe base_;
  const base::ScratchFolder scratch_{"fit"};
  const fs::path folder_ = scratch_.path();
};

// Steps get no longer with faster lines.
std::optional<int> second_host_line(const FitPlanner& planner, Training training, const char* gpu,
                                    double alone) {
  const auto* const found = std::ranges::partition_point(kFitLines, [&](int megabits) {
    const auto both = planner.fastest(training, gpu, 2, megabits);
    return !both || both->tokens_per_second <= alone;
  });
  return found == kFitLines.end() ? std::nullopt : std::optional(*found);
}

FitRow fit_row(const FitPlanner& planner, Training training, const char* gpu,
               const std::vector<double>& megabits) {
  FitRow row;
  row.gpu = gpu;
  row.gibibytes = recipe::known_gpu(gpu)->gibibytes;
  for (const int hosts : kFitHosts) {
    for (const double line : megabits) {
      if (hosts == 1 && line != megabits.front()) continue;
      if (auto plan = planner.fastest(training, gpu, hosts, line)) row.plans.push_back(*plan);
    }
  }
  if (!row.plans.empty() && row.plans.front().hosts == 1) {
    row.second_host = second_host_line(planner, training, gpu, row.plans.front().tokens_per_second);
  }
  for (FitPlan& plan : row.plans) plan.tokens_per_second = two_digits(plan.tokens_per_second);
  return row;
}

// "1200 ro8": tokens a second, and what the plan takes to save memory.
std::string fit_cell(const FitRow& row, int hosts) {
  const auto found = std::ranges::find(row.plans, hosts, &FitPlan::hosts);
  if (found == row.plans.end()) return "-";
  std::string marks;
  if (found->recompute == recipe::Recompute::layer) marks += 'r';
  if (found->recompute == recipe::Recompute::offload) marks += 'a';
  if (found->offload == recipe::Offload::optimizer) marks += 'o';
  if (found->offload == recipe::Offload::disk) marks += 'd';
  if (found->moments == recipe::Moments::bfloat16) marks += 'b';
  if (found->moments == recipe::Moments::int8) marks += '8';
  return fmt::format("{:.9g}{}{}", found->tokens_per_second, marks.empty() ? "" : " ", marks);
}

std::string second_host_text(const FitRow& row) {
  if (row.plans.empty() || row.plans.front().hosts != 1) return "-";
  return row.second_host ? fmt::format("{}", *row.second_host) : "never";
}

}  // namespace

std::vector<FitModel> fit_sizes() {
  recipe::Recipe recipe;
  recipe.model.dtype = recipe::Dtype::bfloat16;
  recipe.model.lora.emplace().rank = 16;
  recipe.data.row = 2048;
  recipe.train.batch = 32;
  recipe.train.micro_batch = 1;
  recipe.codec.forward = recipe.codec.backward = "fixed";
  recipe.codec.forward_bits = recipe.codec.backward_bits = 6;
  const auto llama = [](int hidden, int layers, int heads) {
    return fit_config("LlamaForCausalLM", "llama", hidden, 8192, layers, heads, 8, 128256, true);
  };
  const auto qwen = [](int inner, int layers) {
    return fit_config("Qwen2ForCausalLM", "qwen2", 5120, inner, layers, 40, 8, 152064, false);
  };
  const std::string mistral =
      fit_config("MistralForCausalLM", "mistral", 4096, 14336, 32, 32, 8, 32000, false);
  return {{"1B", llama(2048, 16, 32), recipe},
          {"3B", llama(3072, 28, 24), recipe},
          {"7B", mistral, recipe},
          {"14B", qwen(13824, 48), recipe},
          {"32B", qwen(27648, 64), recipe}};
}

std::vector<FitRow> fit_rows(const std::vector<FitModel>& models,
                             const std::vector<double>& megabits) {
  std::vector<FitRow> rows;
  for (const FitModel& model : models) {
    const FitPlanner planner(model);
    for (const auto& [training, name] : kTrainings) {
      for (const char* gpu : kFitGpus) {
        FitRow& row = rows.emplace_back(fit_row(planner, training, gpu, megabits));
        row.model = model.name;
        row.training = name;
      }
    }
  }
  return rows;
}

std::string fit_text(const std::vector<FitRow>& rows) {
  std::size_t width = std::string("model").size();
  for (const FitRow& row : rows) width = std::max(width, row.model.size());
  constexpr const char* kLine = "{:<{}} {:<6} {:<6} {:>11} {:>11} {:>11} {:>11} {:>8}\n";
  std::string text = fmt::format(fmt::runtime(kLine), "model", width, "train", "GPU", "1 host",
                                 "2 hosts", "4 hosts", "8 hosts", "2 beat 1");
  for (const FitRow& row : rows) {
    text += fmt::format(fmt::runtime(kLine), row.model, width, row.training,
                        fmt::format("{} GB", row.gibibytes), fit_cell(row, 1), fit_cell(row, 2),
                        fit_cell(row, 4), fit_cell(row, 8), second_host_text(row));
  }
  return text;
}

nlohmann::json to_json(const FitRow& row) {
  nlohmann::json json{{"model", row.model},
                      {"training", row.training},
                      {"gpu", row.gpu},
                      {"gibibytes", row.gibibytes},
                      {"second_host_from", nullptr},
                      {"plans", nlohmann::json::array()}};
  if (row.second_host) json["second_host_from"] = *row.second_host;
  for (const FitPlan& plan : row.plans) {
    nlohmann::json& one = json["plans"].emplace_back();
    one = {{"hosts", plan.hosts},
           {"stages", plan.stages},
           {"replicas", plan.replicas},
           {"tokens_per_second", plan.tokens_per_second},
           {"recompute", recipe::name_of(plan.recompute)},
           {"moments", recipe::name_of(plan.moments)},
           {"offload", recipe::name_of(plan.offload)}};
    if (plan.hosts > 1) one["link_megabits"] = plan.megabits;
  }
  return json;
}

}  // namespace strait::planner
