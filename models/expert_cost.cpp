#include <initializer_list>
#include <string>

#include "models/decoder.h"

namespace strait::models {
namespace {

// keeps_input() for one of the experts.
bool experts_keep_input(const DecoderConfig& config, const Lora* lora, const std::string& prefix,
                        std::initializer_list<std::string> names) {
  if (lora != nullptr && config.experts.joined && lora->parameters.empty()) return false;
  for (std::int64_t expert = 0; expert < config.experts.count; ++expert) {
    const std::string own = prefix + config.names.experts + std::to_string(expert) + ".";
    if (keeps_input(lora, own, names)) return true;
  }
  return false;
}

// Whether kernels::expert_products() computes the experts of a block.
bool computes_experts_together(const DecoderConfig& config, const Lora* lora,
                               const std::string& prefix, const CostQuestion& question) {
  if (!question.on_cpu || question.bytes_per_value != sizeof(float)) return false;
  if (config.activation != Activation::silu) return false;
  if (lora == nullptr) return true;
  if (lora->quantization) return false;
  if (config.experts.joined && lora->parameters.empty()) return true;
  const DecoderNames& names = config.names;
  for (std::int64_t expert = 0; expert < config.experts.count; ++expert) {
    const std::string own = prefix + names.experts + std::to_string(expert) + ".";
    for (const std::string& name :
         {names.expert_gate, names.expert_up, names.expert_gate_up, names.expert_down}) {
      if (adapter_of(*lora, own + name)) return false;
    }
  }
  return true;
}

}  // namespace

std::int64_t saved_expert_values(const DecoderConfig& config, const Lora* lora, int index,
                                 const CostQuestion& question) {
  const DecoderNames& names = config.names;
  const std::string prefix = config.block_prefix(index);
  const ExpertOptions& experts = config.experts;
  const std::int64_t shared =
      experts.shared_inner > 0 ? 4 * experts.shared_inner + 2 * config.hidden : 0;
  if (computes_experts_together(config, lora, prefix, question)) {
    // Of each row two inner values, and in as many bytes as ten others its places and weights.
    return experts.per_token * (2 * experts.inner + 10) + config.hidden + 2 * experts.count +
           shared;
  }
  // For each expert of a token its inner values and its result; the router's probabilities.
  std::int64_t values = (experts.clamped.limit > 0 ? 7 : 3) * experts.inner + config.hidden;
  if (experts_keep_input(config, lora, prefix,
                         {names.expert_gate, names.expert_up, names.expert_gate_up})) {
    values += config.hidden;
  }
  if (experts_keep_input(config, lora, prefix, {names.expert_down})) values += experts.inner;
  return experts.per_token * values + (experts.wide_router ? 2 : 1) * config.hidden +
         2 * experts.count + shared;
}

std::int64_t working_expert_values(const DecoderConfig& config, const Lora* lora, int index,
                                   const CostQuestion& question) {
  const ExpertOptions& experts = config.experts;
  if (computes_experts_together(config, lora, config.block_prefix(index), question)) {
    return 3 * experts.per_token * (config.hidden + experts.inner);
  }
  // One expert at a time, which all tokens may go to; and the rows and their gradients.
  return 4 * experts.inner + 2 * experts.per_token * config.hidden;
}

}  // namespace strait::models
