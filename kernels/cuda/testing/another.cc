// A shared library that is not a Muster plug-in.
extern "C" int MusterAnother(void) { return 1; }
