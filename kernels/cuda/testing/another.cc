// A library that is not Muster's.
extern "C" int MusterAnother(void) { return 1; }
