#include "launcher/recipe/recipe_support.h"

#include <array>

#include <fmt/format.h>

#include "launcher/base/errors.h"

namespace strait::recipe {

namespace {

struct MissingFeature {
  bool (*asked_for)(const Recipe&);
  std::string_view sentence;
};

// All that recipes can say and this build cannot do. A new feature deletes its line.
constexpr std::array kMissingFeatures = {
    MissingFeature{[](const Recipe& r) { return r.model.device == Device::cuda; },
                   "model.device = \"cuda\" is not in this build; it offers \"cpu\""},
    MissingFeature{[](const Recipe& r) { return r.model.dtype == Dtype::bfloat16; },
                   "model.dtype = \"bfloat16\" is not in this build; it offers \"float32\""},
    MissingFeature{[](const Recipe& r) { return r.model.lora.has_value(); },
                   "model.lora is not in this build; leave it out for full fine-tuning"},
    MissingFeature{[](const Recipe& r) { return !r.model.adapter.empty(); },
                   "model.adapter is not in this build; leave it out for full fine-tuning"},
    MissingFeature{
        [](const Recipe& r) { return !r.data.tokenizer.empty() && r.data.tokenizer != "bytes"; },
        "data.tokenizer = a directory is not in this build; it offers \"bytes\", or a token file "
        "as data.train"},
    MissingFeature{
        [](const Recipe& r) { return r.pipeline.partition.kind == PartitionKind::profile; },
        "pipeline.partition = \"profile\" is not in this build; it offers \"balanced\" and ranges "
        "such as [[0, 5], [6, 11]]"},
    MissingFeature{[](const Recipe& r) { return !r.train.micro_batch.has_value(); },
                   "train.micro_batch = \"auto\" is not in this build; give a number of rows"},
};

}  // namespace

std::vector<std::string> unsupported_settings(const Recipe& recipe) {
  std::vector<std::string> sentences;
  for (const auto& feature : kMissingFeatures) {
    if (feature.asked_for(recipe)) {
      sentences.emplace_back(feature.sentence);
    }
  }
  return sentences;
}

void check_supported(const Recipe& recipe) {
  const auto sentences = unsupported_settings(recipe);
  if (!sentences.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                    fmt::format("recipe {}: {}", recipe.name, fmt::join(sentences, "\n  ")));
  }
}

}  // namespace strait::recipe
