// libFuzzer target: any text as an adapter_config.json: adapters or one ConfigError, in bounded
// time also where its patterns are compared with names; and what was read is written so that it
// reads back the same.
#include <cstdlib>

#include "models/lora.h"
#include "tests/fuzz/examples.h"

using namespace strait::models;

std::vector<std::string> examples() {
  Lora named;
  named.targets = {"q_proj", "v_proj"};
  named.ranks = {{"layers.0.*", 4}};
  named.alphas = {{"(k|q)_proj", 2}};
  named.blocks = {0, 1};
  named.saved = {"lm_head"};
  Lora by_pattern;
  by_pattern.pattern = ".*\\.(q|v)_proj";
  return {lora_text(named, "base", false), lora_text(by_pattern, "base", true),
          R"({"peft_type": "LORA", "target_modules": "all-linear", "layers_to_transform": [1],
              "init_lora_weights": "gaussian"})"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const void* bytes = data;
  try {
    const Lora lora = parse_lora({static_cast<const char*>(bytes), size}, "fuzz");
    for (const char* matrix :
         {"model.layers.11.self_attn.q_proj", "lm_head",
          "transformer.h.0.attn.c_attn.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"}) {
      if (const auto shape = adapter_of(lora, matrix); shape && shape->rank < 1) std::abort();
    }
    if (!lora.blocks.empty() && lora.targets.empty()) return 0;  // not written so
    if (parse_lora(lora_text(lora, "base", false), "again") != lora) std::abort();
  } catch (const ConfigError& error) {
    if (*error.what() == '\0') std::abort();
  }
  return 0;
}
