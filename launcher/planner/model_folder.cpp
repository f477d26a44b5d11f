#include "launcher/planner/model_folder.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "framework/store/input_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/command_name.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"

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

}  // namespace strait::planner
