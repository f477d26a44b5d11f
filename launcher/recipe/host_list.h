#pragma once

#include <string>
#include <vector>

#include "launcher/recipe/recipe_hosts.h"
#include "launcher/recipe/recipe_keys.h"

// The value of hosts.list: names, and tables where one wants to say more.
namespace strait::recipe {

// What is wrong with the list, naming the host; empty: nothing. Names are what ssh may be given
// and can never be taken for an option of it.
std::string host_list_objection(const RecipeValue& value);

// Of a list without objection.
std::vector<RecipeHost> host_list(const RecipeValue& value);
// The shortest form that reads back the same: a name alone is a string.
RecipeValue host_list_value(const std::vector<RecipeHost>& hosts);

}  // namespace strait::recipe
