#include "launcher/planner/planned_model.h"

#include <cctype>
#include <nlohmann/json.hpp>
#include <regex>

#include "framework/fields/bounded_json.h"
#include "framework/name_pattern.h"
#include "framework/store/input_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "models/peft_settings.h"

namespace strait::planner {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_model(const std::string& sentence) {
  throw base::UserError(base::ExitCode::bad_input, sentence);
}

bool is_gguf(const fs::path& file) { return file.extension() == ".gguf"; }

// The GGUF file at this path, or the first one by name in this folder.
std::optional<fs::path> gguf_file(const fs::path& model) {
  std::error_code none;
  if (fs::is_regular_file(model, none) && is_gguf(model)) return model;
  if (!fs::is_directory(model, none)) return std::nullopt;
  std::vector<fs::path> files;
  try {
    files = store::entries_of(model);
  } catch (const store::StoreError&) {
    return std::nullopt;  // the file is only used for advice
  }
  std::erase_if(files, [](const fs::path& file) { return !is_gguf(file); });
  const auto first = std::ranges::min_element(files);
  return first == files.end() ? std::nullopt : std::optional(*first);
}

// Readers of GGUF differ in what they can write, so the advice is the model from which the file was
// made.
std::string gguf_advice(const fs::path& file) {
  return fmt::format(
      "its weights are in {}, and strait reads safetensors; fetch the model that the GGUF was made "
      "from, which its page on the hub names: hf download OWNER/NAME --local-dir {}",
      file.string(), base::shell_word(file.stem().string() + "-safetensors"));
}

}  // namespace

std::string folder_fault(const fs::path& folder, const std::string& file) {
  std::error_code error;
  if (!fs::exists(folder / file, error) && error == std::errc::permission_denied) {
    return "cannot be read by this user: " + error.message();
  }
  if (fs::is_directory(folder, error)) return "has no " + file;
  if (fs::exists(folder, error)) return "is a file";
  return "is not a directory here (" + fs::current_path().string() + ")";
}

std::string read_config(const fs::path& model, bool goes_on) {
  const fs::path file = model / "config.json";
  std::error_code none;
  if (fs::exists(file, none)) return store::read_text_file(file, kMostConfigBytes);
  const std::string fault = folder_fault(model, file.filename());
  if (goes_on) {
    refuse_model(
        fmt::format("the run's model, {}, {}; put back what was there, or say where it is now: "
                    "--set model.path=DIRECTORY",
                    model.string(), fault));
  }
  std::string advice;
  if (const auto gguf = gguf_file(model)) {
    advice = "; " + gguf_advice(*gguf);
  } else if (!fs::exists(model, none) && none != std::errc::permission_denied) {
    advice = "; " + base::download_advice(model.string());
  }
  refuse_model(fmt::format(
      "model.path = \"{}\" {}; it must be a Hugging Face model directory with config.json{}",
      model.string(), fault, advice));
}

std::optional<std::string> model_hub_name(const fs::path& model, const std::string& config) {
  constexpr std::string_view kCached = "models--";
  for (const fs::path& part : model.lexically_normal()) {
    std::string name = part.string();  // models--OWNER--NAME
    const std::size_t owner = name.find("--", kCached.size());
    if (!name.starts_with(kCached) || owner == name.npos) continue;
    return base::hub_name(name.replace(owner, 2, "/").substr(kCached.size()));
  }
  const auto fields = nlohmann::json::parse(config, nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object()) return std::nullopt;
  const auto from = fields.find("_name_or_path");
  if (from == fields.end() || !from->is_string()) return std::nullopt;
  std::error_code none;
  const auto name = from->get<std::string>();
  // The path of a local folder may have two parts, too.
  return fs::exists(name, none) ? std::nullopt : base::hub_name(name);
}

void check_has_weights(const recipe::Recipe::Model& source) {
  if (source.weights != recipe::Weights::load) return;
  const fs::path model = source.path;
  constexpr std::array kForms = {"model.safetensors", "model.safetensors.index.json",
                                 "pytorch_model.bin", "pytorch_model.bin.index.json"};
  const bool any = std::ranges::any_of(kForms, [&](const char* name) {
    std::error_code none;  // a dangling link is found when it is opened
    return fs::symlink_status(model / name, none).type() != fs::file_type::not_found;
  });
  if (any) return;
  if (const auto gguf = gguf_file(model)) {
    refuse_model(fmt::format("model.path = \"{}\" has no {}; {}", model.string(), kForms[0],
                             gguf_advice(*gguf)));
  }
  refuse_model(fmt::format(
      "model.path = \"{}\" has neither {} nor {}; set model.weights = \"random\" to start without "
      "weights, or fetch them: hf download {} --local-dir {}",
      model.string(), kForms[0], kForms[1], base::hub_name(model.string()).value_or("OWNER/NAME"),
      base::shell_word(model.string())));
}

namespace {

constexpr const char* kAdapterConfig = "adapter_config.json";

std::optional<kernels::MatrixFormat> format_of(recipe::Quantization quantization) {
  switch (quantization) {
    case recipe::Quantization::int8:
      return kernels::MatrixFormat::int8;
    case recipe::Quantization::int4:
      return kernels::MatrixFormat::int4;
    case recipe::Quantization::nf4:
      return kernels::MatrixFormat::nf4;
    case recipe::Quantization::none:
      break;
  }
  return std::nullopt;
}

models::Lora lora_of(const recipe::Recipe::Model& model) {
  const recipe::Recipe::Lora& settings = *model.lora;
  models::Lora lora;
  lora.quantization = format_of(model.quantization);
  lora.rank = settings.rank;
  lora.alpha = settings.alpha;
  lora.dropout = settings.dropout;
  lora.rank_stabilized = settings.rslora;
  lora.decomposed = settings.dora;
  lora.targets = settings.targets;
  lora.pattern = settings.pattern;
  lora.parameters = settings.target_parameters;
  lora.ranks = settings.rank_pattern;
  lora.alphas = settings.alpha_pattern;
  lora.blocks = settings.layers;
  lora.saved = settings.modules_to_save;
  return lora;
}

recipe::Recipe::Lora settings_of(const models::Lora& lora) {
  recipe::Recipe::Lora settings;
  settings.rank = lora.rank;
  settings.alpha = lora.alpha;
  settings.dropout = lora.dropout;
  settings.rslora = lora.rank_stabilized;
  settings.dora = lora.decomposed;
  settings.targets = lora.targets;
  settings.pattern = lora.pattern;
  settings.target_parameters = lora.parameters;
  settings.rank_pattern = lora.ranks;
  settings.alpha_pattern = lora.alphas;
  settings.layers = lora.blocks;
  settings.modules_to_save = lora.saved;
  return settings;
}

models::ModelConfig adapted_model(const recipe::Recipe::Model& model, const std::string& text) {
  models::ModelConfig config =
      models::parse_config(text, (fs::path(model.path) / "config.json").string());
  if (model.lora) {
    config.lora =
        std::make_shared<const models::Lora>(models::with_own_names(config, lora_of(model)));
  }
  return config;
}

// model.lora in the form in which strait export writes it for PEFT. PEFT has no short form for all
// matrices of some blocks.
recipe::Recipe::Lora as_exported(const recipe::Recipe::Model& model, const std::string& config) {
  return settings_of(models::lora_for_peft(adapted_model(model, config)));
}

// "qwen2-0.5b" of a hub's id, of a directory, and of a snapshot in the hub's cache
// (models--Qwen--Qwen2-0.5B/snapshots/1a2b).
std::string name_of_model(const fs::path& path) {
  fs::path folder = (path / "").lexically_normal().parent_path();
  if (folder.parent_path().filename() == "snapshots") folder = folder.parent_path().parent_path();
  std::string name = folder.filename().string();
  if (name.starts_with("models--")) name.erase(0, name.rfind("--") + 2);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

}  // namespace

models::ModelConfig planned_model(const plan::Plan& plan) {
  return adapted_model(plan.recipe.model, plan.model_config);
}

double guess_loss(const plan::Plan& plan) {
  return std::log(static_cast<double>(models::describe(planned_model(plan)).vocabulary));
}

std::int64_t value_bytes(const recipe::Recipe::Model& model) {
  return model.dtype == recipe::Dtype::bfloat16 ? 2 : 4;
}

std::int64_t recompute_layers(const recipe::Recipe::Model& recipe,
                              models::ModelDescription& model) {
  if (recipe.recompute != recipe::Recompute::layer) return 0;
  const std::int64_t input = model.hidden * value_bytes(recipe);
  std::int64_t most = 0;
  for (models::LayerCost& layer : model.layers) {
    const std::int64_t all = layer.saved_bytes_per_token;
    layer.saved_bytes_per_token = std::min(input, all);
    most = std::max(most, all - layer.saved_bytes_per_token);
    // A factor of 2 equals two forwards, and recomputing adds one forward.
    if (layer.backward_factor > 0 && !layer.backward_in_forward) layer.backward_factor += 1;
  }
  return most;
}

std::string adapter_note(const recipe::Recipe::Model& model, const std::string& config) {
  if (model.adapter.empty()) return "";
  const fs::path file = fs::path(model.adapter) / kAdapterConfig;
  std::string base;
  try {
    const auto fields = fields::parse_bounded_json(store::read_text_file(file, kMostConfigBytes));
    base = fields.value("base_model_name_or_path", "");
  } catch (const fields::JsonError&) {
    return "";
  } catch (const nlohmann::json::exception&) {
    return "";  // usually null: the adapter names no model
  }
  const std::string named = name_of_model(base);
  const std::string on_hub = model_hub_name(model.path, config).value_or("");
  if (named.empty() || named == name_of_model(fs::absolute(model.path)) ||
      named == name_of_model(on_hub)) {
    return "";
  }
  return fmt::format(
      "{} says that the adapter belongs to \"{}\", but model.path is \"{}\"; make sure that this "
      "is the same model",
      file.string(), base::printable(base), model.path);
}

// Whether both have the same meaning. PEFT stores some lists as sets, in its own order.
bool are_equal(recipe::Recipe::Lora one, recipe::Recipe::Lora other) {
  for (recipe::Recipe::Lora* settings : {&one, &other}) {
    std::ranges::sort(settings->targets);
    std::ranges::sort(settings->target_parameters);
    std::ranges::sort(settings->layers);
    std::ranges::sort(settings->modules_to_save);
  }
  return one == other;
}

void check_rates(const recipe::Recipe& recipe, const models::ModelDescription& model) {
  const auto refuse = [&recipe](const std::string& why) {
    throw base::UserError(base::ExitCode::bad_input, "train.rates ({}) {}",
                          recipe.origins.of("train.rates"), why);
  };
  const std::vector<models::TensorShape> trained = model.trained_tensors();
  std::map<std::string, std::string> pattern_of;
  for (const auto& [pattern, rate] : recipe.train.rates) {
    const std::regex whole = compile_pattern(pattern);
    bool used = false;
    for (const models::TensorShape& tensor : trained) {
      if (!std::regex_match(tensor.name, whole)) continue;
      used = true;
      const auto [other, added] = pattern_of.emplace(tensor.name, pattern);
      if (added) continue;
      refuse(fmt::format("has two patterns for {}, \"{}\" and \"{}\"; let one of them match it",
                         tensor.name, other->second, pattern));
    }
    if (used) continue;
    refuse(fmt::format(
        "has the pattern \"{}\", which matches no trained parameter; the first one is {}", pattern,
        trained.front().name));
  }
}

recipe::Recipe with_adapter_settings(recipe::Recipe recipe, const std::string& config) {
  if (recipe.model.adapter.empty()) return recipe;
  const fs::path file = fs::path(recipe.model.adapter) / kAdapterConfig;
  std::error_code none;
  if (!fs::exists(file, none)) {
    const std::string& adapter = recipe.model.adapter;
    const std::string advice =
        fs::exists(adapter, none) ? "" : "; " + base::download_advice(adapter);
    throw base::UserError(base::ExitCode::bad_input,
                          "model.adapter = \"{}\" {}; it must be a directory that PEFT or strait "
                          "export has written{}",
                          adapter, folder_fault(adapter, file.filename()), advice);
  }
  const models::Lora in_file =
      models::parse_lora(store::read_text_file(file, kMostConfigBytes), file.string());
  const recipe::Recipe::Lora settings = settings_of(models::lora_from_peft(
      models::parse_config(config, (fs::path(recipe.model.path) / "config.json").string()),
      in_file));
  if (recipe.model.lora && !are_equal(*recipe.model.lora, settings) &&
      !are_equal(*recipe.model.lora, settings_of(in_file)) &&
      !are_equal(as_exported(recipe.model, config), settings_of(in_file))) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "model.lora has other settings than {}; leave it out to go on with that adapter",
        file.string());
  }
  const recipe::PreferenceKind loss = recipe.train.preference.loss;
  if (recipe::has_reference(loss) && !settings.modules_to_save.empty()) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "{} has modules_to_save, but train.preference.loss is \"{}\", which compares with the "
        "model without adapters, and these modules have no other weights; take an adapter without "
        "them, or set it to \"orpo\" or \"simpo\"",
        file.string(), recipe::name_of(loss));
  }
  recipe.model.lora = settings;
  return recipe;
}

}  // namespace strait::planner
