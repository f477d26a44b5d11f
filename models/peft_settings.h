#pragma once

#include "models/lora.h"
#include "models/model_config.h"

namespace strait::models {

// The settings of the model's adapters for lora_text(), from which PEFT over transformers makes the
// adapters that adapter_files() names. Modules have the library's names. With `blocks` but without
// targets each adapted matrix becomes a target. Where experts have adapters, "all matrices" is
// written as their names, because PEFT means others by it, and there is no dropout, which PEFT
// refuses for experts.
Lora lora_for_peft(const ModelConfig& config);

// The reverse: what an adapter_config.json means for this model, which has no adapters yet.
Lora lora_from_peft(const ModelConfig& config, Lora lora);

// Settings of a recipe, whose modules may have either kind of name.
Lora with_own_names(const ModelConfig& config, Lora lora);

// What PEFT over transformers 5 does not read of the model's adapters: "loads no DoRA of experts".
// Empty: it reads all.
std::string unread_by_peft(const ModelConfig& config);

}  // namespace strait::models
