extern "C" int a_function_of_something_else() { return 1; }
